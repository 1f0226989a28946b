// A model behind an HTTP server with the endpoints of OpenAI's API.
#pragma once

#include <cstdint>
#include <functional>
#include <stop_token>
#include <string>

#include "mantissa/app/api/hardware.h"
#include "mantissa/app/api/model.h"
#include "mantissa/app/api/precision.h"
#include "mantissa/app/serve/options.h"

namespace mantissa::serve {

/// A server that listens.
struct Ready {
  std::string url;           // "http://127.0.0.1:8080"
  std::string model;         // its name
  std::string policy;        // its name
  std::int64_t streams = 0;  // sequences that grow at once
  std::int64_t tokens = 0;   // the largest number of tokens of a sequence
  bool chats = false;        // the model has a chat template
};

struct ServeOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                     // 0: any free one
  std::string api_key;                 // empty: none
  std::string chat_template = "auto";  // as api::ChatOptions::chat_template
  Defaults defaults;
  Limits limits;
  api::Precision precision;
  api::Hardware hardware;
  std::function<void(const Ready&)> on_ready;
  std::function<void(const std::string&)> on_trouble;  // no client can connect for now, and why
};

/// Serves `model` until `stop`. Answers have the tokens and log-probabilities of api::generate() and of
/// api::Chat. Throws as these do, and ConfigError if the address cannot be bound, or if other machines reach
/// it and no key is required; ResourceError if the system has closed the socket.
void serve(const api::Model& model, const ServeOptions& options, const std::stop_token& stop);

}  // namespace mantissa::serve
