// The text that a model continues to answer a row, as training on the row with train.objective = "sft" has it
// before the answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/setup/data/chat_format.h"
#include "mantissa/text/rows/conversation_row.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::data {

struct PromptText {
  std::vector<std::int32_t> ids;  // what the model continues
  std::string text;               // of the ids, without those that the tokenizer puts before it
  std::size_t answer = 0;         // byte of `text` at which the answer begins

  /// Return the text before the answer, and the beginning of the answer in the prompt, such as "<think>".
  std::string_view question() const { return std::string_view(text).substr(0, answer); }
  std::string_view begun() const { return std::string_view(text).substr(answer); }
};

/// Returns the prompt of a row from text::read_prompt(). With a template, it is the conversation up to the
/// place where the answer begins; an answer begins at a <think> that the template adds, or with the beginning
/// that the row's prompt has. Without a template (null), it is the row's prompt as it is; a <think> at its
/// end begins the answer. A tokenizer may join the end of a prompt and the beginning of an answer in one
/// token, so the last id of a prompt may differ in training. Throws FileError, beginning with `where`, if the
/// template rejects the row, for messages without a template, and for an empty prompt, and ConfigError for an
/// id that is not below `vocabulary`, the entries of the model.
PromptText prompt_text(const tokenizer::Tokenizer& tokenizer, const ChatFormat* format,
                       const text::ConversationRow& row, std::int64_t vocabulary, const std::string& where);

/// The ids of a text after those that the tokenizer puts before it, such as a begin-of-text token; none
/// follow.
struct BegunIds {
  std::vector<std::int32_t> ids;
  std::size_t first = 0;  // index of the first id of the text
};
BegunIds begun_ids(const tokenizer::Tokenizer& tokenizer, std::string_view text);

/// Throws FileError, beginning with `where`, if the row has messages only, which need a template.
void require_texts(const text::ConversationRow& row, const std::string& where);

}  // namespace mantissa::data
