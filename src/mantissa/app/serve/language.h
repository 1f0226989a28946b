// The texts of a model: from requests to token ids, and from tokens to text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mantissa/app/serve/request.h"
#include "mantissa/generate/dialog/prompt_format.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/tokenizer/growing_text.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::serve {

/// A prompt as the model reads it, and what ends the text after it.
struct EncodedPrompt {
  std::string text;  // for echo
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> ends;  // ids that end a text
  std::vector<std::string> stops;  // strings that end a text
};

/// Safe to use from several threads at once.
class Language {
 public:
  /// Reads the tokenizer and the chat template of `source`. `template_name` is that of dialog::PromptFormat;
  /// a model without a template of its own cannot chat under "auto". Throws FileError for damaged files, and
  /// ConfigError for an unknown name.
  Language(const weights::ModelSource& source, const std::string& template_name);

  /// Returns the prompts of a request, in the order of the request. A text gets the ids that generate() gives
  /// it, and messages those of a Conversation. Throws RequestError (400).
  std::vector<EncodedPrompt> encode(const TextRequest& request) const;

  /// Returns a text that grows until one of the prompt's stops. Null for a model without a tokenizer.
  std::optional<tokenizer::GrowingText> growing_text(const EncodedPrompt& prompt, bool chat) const;

  /// Returns the bytes that `id` adds to a text after `previous` (−1: at its beginning), with those of
  /// special tokens. Without a tokenizer, and for an id that it does not know, returns "token_id:ID".
  std::string bytes_of(std::int32_t previous, std::int32_t id) const;

  bool can_chat() const { return chat_ != nullptr; }

 private:
  EncodedPrompt encode(const TextPrompt& prompt, const TextRequest& request, const std::string& name) const;

  weights::ModelSource source_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;  // null: none
  std::unique_ptr<dialog::PromptFormat> chat_;       // null: the model has no template
  std::string no_chat_;                              // why
  dialog::AnswerForm answer_;
  std::vector<std::int32_t> ends_;  // of completions
};

/// Returns a token's bytes as a string of JSON: bytes that are not UTF-8 as "bytes:\xe2\x96".
std::string printed(const std::string& bytes);

}  // namespace mantissa::serve
