// Replies to requests for text, whole or in parts, in the form of OpenAI's API.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mantissa/app/serve/answer.h"
#include "mantissa/app/serve/language.h"
#include "mantissa/app/serve/request.h"

namespace mantissa::serve {

using Json = nlohmann::ordered_json;

/// Returns JSON as a line, with U+FFFD for bytes that are not UTF-8.
std::string line_of(const Json& json);

/// The fields that all objects of a reply have.
struct ReplyHead {
  std::string id;     // "cmpl-…", "chatcmpl-…"
  std::string model;  // its name
  std::int64_t created = 0;
};

/// Collects the events of an answer.
class Reply {
 public:
  /// All must outlive the reply.
  Reply(const TextRequest& request, const std::vector<EncodedPrompt>& prompts, const Language& language,
        ReplyHead head);

  /// Takes the next event. Returns the parts of a streamed reply that it gives, maybe none. Throws the error
  /// of the event.
  std::vector<Json> take(const Event& event);
  /// Returns the parts with which a streamed reply begins.
  std::vector<Json> begin();
  /// Returns the last part of a streamed reply with stream_options.include_usage.
  Json usage_part() const;
  /// Returns true if all sequences have ended.
  bool complete() const { return ended_ == choices_.size(); }
  /// Returns the whole reply.
  Json whole() const;

 private:
  struct Scored {
    rollout::LiveToken token;
    std::int32_t previous = -1;  // the id before it
    bool first = false;          // of the prompt: without a log-probability
    std::int64_t offset = 0;     // characters before it
  };
  struct Choice {
    const EncodedPrompt* prompt = nullptr;
    std::string text, finish;
    std::vector<Scored> scored;
    std::size_t sent = 0;        // of `scored`, those in parts of the reply
    std::int32_t previous = -1;  // the last id
    std::int64_t characters = 0, made = 0;
    bool ended = false;
  };

  void score(Choice& choice, const rollout::LiveToken& token, bool first);
  Json log_probs_of(const Choice& choice, std::size_t from) const;
  Json chat_log_probs_of(const Choice& choice, std::size_t from) const;
  Json usage() const;
  Json object(const char* whole, const char* part, bool is_part) const;
  Json part(std::size_t index, const std::string& text, const std::string& finish);

  const TextRequest& request_;
  const Language& language_;
  ReplyHead head_;
  std::int64_t prompt_tokens_ = 0;
  std::vector<Choice> choices_;
  std::size_t ended_ = 0;
};

}  // namespace mantissa::serve
