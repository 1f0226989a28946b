#include "mantissa/generate/dialog/turn_end.h"

#include <memory>
#include <vector>

#include "mantissa/setup/data/answer_text.h"

namespace mantissa::dialog {

rollout::OnToken until_turn_ends(const tokenizer::Tokenizer& tokenizer, const data::ChatFormat* format,
                                 std::size_t requests) {
  if (format == nullptr || format->turn_ends().empty()) return {};
  const auto texts = std::make_shared<std::vector<tokenizer::GrowingText>>();  // a function must be copyable
  for (std::size_t r = 0; r < requests; ++r) texts->push_back(data::growing_answer(tokenizer, format));
  return [texts](std::size_t request, std::int32_t id, double) {
    tokenizer::GrowingText& text = (*texts)[request];
    text.push(id);
    return !text.stopped();
  };
}

}  // namespace mantissa::dialog
