#include "mantissa/app/serve/serve.h"

#include <memory>

#include "mantissa/app/api/internal.h"
#include "mantissa/app/serve/http_server.h"
#include "mantissa/app/serve/language.h"
#include "mantissa/app/serve/memory_reserve.h"
#include "mantissa/app/serve/scheduler.h"
#include "mantissa/app/serve/service.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/generate/rollout/live_sequences.h"
#include "mantissa/generate/rollout/states_origin.h"
#include "mantissa/text/tokenizer/stop_text.h"

namespace mantissa::serve {

void serve(const api::Model& model, const ServeOptions& options, const std::stop_token& stop) {
  if (!is_loopback(options.host) && options.api_key.empty()) {
    throw ConfigError(
        "--host {}: other machines reach this address, and anyone there could use the server. Fix: "
        "--api-key-file FILE, or the default --host 127.0.0.1",
        options.host);
  }
  const MemoryReserve reserve;  // also for the end of the model
  rollout::check(options.defaults.sampling);
  const tokenizer::StopText checked(options.defaults.stop);
  const auto device = api::device_for(options.hardware);
  const weights::ModelSource source = api::source_of(model);
  const precision::Policy policy = api::policy_for(options.precision, source);
  const Language language(source, options.chat_template);
  Limits limits = options.limits;
  limits.tokens = rollout::live_capacity(source.config, limits.tokens);
  Scheduler scheduler(
      std::make_unique<rollout::LiveSequences>(source, policy, limits.tokens, limits.streams, *device),
      language, limits, options.defaults.max_new_tokens);
  const std::string name = model.directory.empty() ? "model" : last_name(model.directory);
  Service service(name, language, scheduler, options.defaults, limits);
  HttpServer server(service, {options.host, options.port, options.api_key});
  server.bind();
  if (options.on_ready) {
    options.on_ready({server.url(), name, rollout::name_of(policy), scheduler.streams(), scheduler.capacity(),
                      language.can_chat()});
  }
  server.run(stop, options.on_trouble);
}

}  // namespace mantissa::serve
