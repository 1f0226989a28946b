// mantissa serve
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "mantissa/app/api/error.h"
#include "mantissa/app/api/generate.h"
#include "mantissa/app/cli/common.h"
#include "mantissa/app/cli/output.h"
#include "mantissa/app/serve/serve.h"
#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"

namespace mantissa::cli {
namespace {

/// Returns the key in the file of --api-key-file, or "" without the option.
std::string api_key_of(const Arguments& a) {
  const std::string file = given_file(a, "--api-key-file");
  if (file.empty()) return {};
  const std::string text = api::read_prompt(file);
  const std::string key(trimmed(text));
  const bool printable = std::ranges::all_of(key, [](char c) { return c > ' ' && c < '\x7f'; });
  if (key.empty() || !printable) {
    throw ConfigError(
        "--api-key-file {}: expected one key of printable ASCII characters. Fix: openssl rand -hex 32 > {}",
        file, file);
  }
  return key;
}

serve::ServeOptions serve_options_of(const Arguments& a) {
  constexpr std::int64_t kMebibyte = std::int64_t{1} << 20, kWeek = std::int64_t{7} * 24 * 3600;
  serve::ServeOptions o;
  o.host = a.text("--host");
  o.port = static_cast<int>(a.integer("--port", 0, 65535));
  o.api_key = api_key_of(a);
  o.chat_template = a.text("--template");
  o.limits.tokens = a.integer("--max-tokens", 2, std::int64_t{1} << 24);
  o.limits.streams = a.integer("--streams", 1, 1024);
  o.limits.queue = a.integer("--max-queue", 1, std::int64_t{1} << 20);
  o.limits.connections = a.integer("--max-connections", 1, 4096);
  o.limits.body_bytes = static_cast<std::size_t>(a.integer("--max-body", 1, 1024) * kMebibyte);
  o.limits.request_seconds = a.integer("--timeout", 1, kWeek);
  o.limits.client_seconds = a.integer("--client-timeout", 1, kWeek);
  o.defaults.max_new_tokens = a.integer("--max-new-tokens", 1, std::int64_t{1} << 24);
  o.defaults.stop = a.texts("--stop");
  o.defaults.sampling = {a.number("--temperature"),
                         a.integer("--top-k", 0, std::int64_t{1} << 40),
                         a.number("--top-p"),
                         a.number("--min-p"),
                         a.number("--repetition-penalty"),
                         a.seed()};
  o.precision = precision_of(a);
  o.hardware = hardware_of(a);
  return o;
}

int serve_model(const Arguments& a) {
  serve::ServeOptions options = serve_options_of(a);
  options.on_ready = [&](const serve::Ready& ready) {
    if (a.has("--json")) {
      const nlohmann::ordered_json line = {{"url", ready.url},           {"model", ready.model},
                                           {"policy", ready.policy},     {"streams", ready.streams},
                                           {"max_tokens", ready.tokens}, {"chat", ready.chats}};
      fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    } else {
      fmt::print("serving {} under {} at {}\n", ready.model, ready.policy, ready.url);
    }
    flush_output();
  };
  options.on_trouble = [&](const std::string& trouble) { tell(a, {}, {trouble}); };
  tell_policy(a);
  tell_model(a);
  const SignalStop signals;  // before the threads of the server
  serve::serve(model_of(a), options, signals.token());
  return report_interrupt(signals, "the server has ended; requests in work got an error");
}

}  // namespace

Commands serve_commands() {
  return {
      {.name = "serve",
       .summary = "serve a model over HTTP, with the endpoints of OpenAI's API",
       .positionals = {{"MODEL", "a Hugging Face directory, a GGUF file, or a run"}},
       .details =
           "Answers have the tokens and log-probabilities that generate and chat give under the same policy. The "
           "options of sampling are the values of fields that a request leaves out. Ctrl-C ends the server.",
       .options =
           {{"--host", one, "ADDRESS", "address to listen on; beyond this machine only with a key",
             "127.0.0.1"},
            {"--port", one, "N", "port; 0: any free one", "8080"},
            {"--api-key-file", one, "FILE", "file with the key that requests must have"},
            {"--template", one, "NAME|FILE",
             "the model's own chat template, a built-in one (chatml, llama3, qwen, mistral, gemma, rwkv), "
             "or a Jinja file",
             "auto"},
            {"--max-tokens", one, "N",
             "largest number of tokens of a sequence with its prompt; at most the model's context", "4096"},
            {"--max-new-tokens", one, "N", "new tokens of a request that names no number", "128"},
            kSampling,
            kSeed,
            {"--streams", one, "N", "largest number of sequences decoded at once; changes no bit", "8"},
            {"--max-queue", one, "N", "requests in work or waiting; further ones get status 429", "256"},
            {"--max-connections", one, "N", "open connections; further ones get status 503", "256"},
            {"--max-body", one, "MB", "largest body of a request, in MiB", "8"},
            {"--timeout", one, "S", "largest number of seconds for the answer to a request", "600"},
            {"--client-timeout", one, "S",
             "largest number of seconds in which a client sends its request, or takes a part of the answer",
             "30"},
            kAdapter},
       .groups = {kPrecision, kRules, kHardware, kResults},
       .run = serve_model}};
}

}  // namespace mantissa::cli
