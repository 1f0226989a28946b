// A tiny model behind the endpoints, without sockets.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "app/api/tiny.h"
#include "mantissa/app/api/internal.h"
#include "mantissa/app/serve/language.h"
#include "mantissa/app/serve/request_error.h"
#include "mantissa/app/serve/scheduler.h"
#include "mantissa/app/serve/service.h"
#include "mantissa/generate/rollout/live_sequences.h"

namespace mantissa::testing {

/// Trains a byte model of one layer, with the template chatml.
inline api::Model trained(const TemporaryFolder& folder) {
  api::train(api::Config::parse(tiny_config(4, "32-true")), into(folder / "r"));
  return {folder / "r"};
}

struct Served {
  explicit Served(const api::Model& model, const std::string& policy = "32-true", serve::Limits l = {})
      : limits(l),
        device(api::device_for({.threads = 2})),
        source(api::source_of(model)),
        language(source, "chatml"),
        scheduler(std::make_unique<rollout::LiveSequences>(source, precision::Policy::parse(policy),
                                                           std::min<std::int64_t>(l.tokens, 512), l.streams,
                                                           *device),
                  language, limits, defaults.max_new_tokens),
        service("tiny", language, scheduler, defaults, limits) {}

  /// Returns the reply to a request, or the error object.
  nlohmann::json post(const nlohmann::json& body, const std::string& path = "/v1/completions") {
    return post_text(body.dump(), path);
  }
  nlohmann::json post_text(const std::string& body, const std::string& path = "/v1/completions") {
    try {
      const std::optional<std::string> whole = service.post(path, body)->whole([] { return true; });
      return nlohmann::json::parse(whole.value_or("null"));
    } catch (const serve::RequestError& error) {
      nlohmann::json json = nlohmann::json::parse(error.to_json().dump());
      json["status"] = error.status();
      return json;
    }
  }
  /// Returns the events of a streamed reply.
  std::vector<std::string> stream(nlohmann::json body, const std::string& path = "/v1/completions") {
    body["stream"] = true;
    const auto exchange = service.post(path, body.dump());
    std::string text;
    while (const auto events = exchange->next_events([] { return true; })) text += *events;
    std::vector<std::string> all;
    for (std::size_t at = 0, end; (end = text.find("\n\n", at)) != std::string::npos; at = end + 2)
      all.push_back(text.substr(at + std::string("data: ").size(), end - at - 6));
    return all;
  }

  serve::Limits limits;
  serve::Defaults defaults;
  std::shared_ptr<const runtime::Device> device;
  weights::ModelSource source;
  serve::Language language;
  serve::Scheduler scheduler;
  serve::Service service;
};

}  // namespace mantissa::testing
