// Requests for text: JSON in the form of OpenAI's API, checked field by field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/app/serve/options.h"
#include "mantissa/generate/dialog/prompt_format.h"
#include "mantissa/generate/rollout/sampler.h"

namespace mantissa::serve {

/// A text or token ids.
struct TextPrompt {
  std::string text;
  std::vector<std::int32_t> ids;
  bool is_ids = false;
};

struct TextRequest {
  bool chat = false;
  std::vector<TextPrompt> prompts;         // of a completion
  std::vector<dialog::Message> messages;   // of a chat completion
  std::int64_t n = 1;                      // sequences for each prompt
  std::optional<std::int64_t> max_tokens;  // new ones of each sequence; null: the default of the server
  rollout::SamplingOptions sampling;
  std::vector<std::string> stop;
  bool log_probs = false;
  std::int64_t most_likely = 0;  // the number of most likely tokens with each log-probability
  bool echo = false;             // the answer begins with the prompt
  bool stream = false, include_usage = false;

  std::int64_t sequences() const { return (chat ? 1 : std::ssize(prompts)) * n; }
};

/// Reads the body of POST /v1/completions and /v1/chat/completions. A field that is absent or null has the
/// value of `defaults`. Throws RequestError (400) with the field that is wrong, unknown or unsupported.
TextRequest read_completion(std::string_view body, const Defaults& defaults, const Limits& limits);
TextRequest read_chat(std::string_view body, const Defaults& defaults, const Limits& limits);

}  // namespace mantissa::serve
