#include "mantissa/setup/data/answer_text.h"

#include <utility>

namespace mantissa::data {

tokenizer::GrowingText growing_answer(const tokenizer::Tokenizer& tokenizer, const ChatFormat* format) {
  if (format == nullptr) return {tokenizer, {}, tokenizer::SpecialTokens::kept};
  return {tokenizer, format->turn_ends(), tokenizer::SpecialTokens::left_out};
}

AnswerText answer_text(const tokenizer::Tokenizer& tokenizer, const ChatFormat* format,
                       const PromptText& prompt, std::vector<std::int32_t> ids) {
  if (format == nullptr && !ids.empty() && ids.back() == tokenizer.separator()) ids.pop_back();
  tokenizer::GrowingText text = growing_answer(tokenizer, format);
  std::string answer = std::string(prompt.begun()) + text.finish(ids);
  return {std::move(answer), text.stopped()};
}

}  // namespace mantissa::data
