#include "mantissa/text/tokenizer/growing_text.h"

#include <utility>

namespace mantissa::tokenizer {

GrowingText::GrowingText(const Tokenizer& tokenizer, std::vector<std::string> stops, SpecialTokens special)
    : tokenizer_(&tokenizer), special_(special), stream_(tokenizer), stop_(std::move(stops)) {}

std::string GrowingText::push(std::int32_t id) {
  if (!tokenizer_->known(id)) return {};
  if (special_ == SpecialTokens::left_out && tokenizer_->special(id)) return {};
  return stop_.push(stream_.push(id));
}

std::string GrowingText::finish(std::span<const std::int32_t> ids) {
  std::string text;
  for (const std::int32_t id : ids) text += push(id);
  text += stop_.push(stream_.finish());
  return text + stop_.finish();
}

}  // namespace mantissa::tokenizer
