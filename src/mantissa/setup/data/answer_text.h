// The text of an answer, from the ids with which a model continues a prompt.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/setup/data/chat_format.h"
#include "mantissa/setup/data/prompt_text.h"
#include "mantissa/text/tokenizer/growing_text.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::data {

struct AnswerText {
  std::string text;
  bool ends_turn = false;  // one of ChatFormat::turn_ends() follows in the ids
};

/// Returns the text of an answer while its ids arrive: up to the first of ChatFormat::turn_ends(), without
/// ids that the tokenizer does not know, and with a template (not null) without special tokens.
tokenizer::GrowingText growing_answer(const tokenizer::Tokenizer& tokenizer, const ChatFormat* format);

/// Returns the answer: its beginning in the prompt, and the text of the ids that continue it, as
/// growing_answer() has it. Without a template, leaves out the separator at the end.
AnswerText answer_text(const tokenizer::Tokenizer& tokenizer, const ChatFormat* format,
                       const PromptText& prompt, std::vector<std::int32_t> ids);

}  // namespace mantissa::data
