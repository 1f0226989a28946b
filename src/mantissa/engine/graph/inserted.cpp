#include "mantissa/engine/graph/inserted.h"

#include <algorithm>
#include <utility>

#include "mantissa/engine/graph/op.h"
#include "mantissa/engine/graph/ops/ops.h"

namespace mantissa::graph {

std::string_view inserted_step(std::string_view op) {
  const std::pair<const OpDef*, std::string_view> steps[] = {
      {&kStoreScaled, "writes an operand in the format with scales of the product that reads it"},
      {&kCast, "rounds a result or an operand to the format of the op in the same scope"}};
  const auto* found = std::ranges::find(steps, op, [](const auto& step) { return step.first->op; });
  return found == std::end(steps) ? std::string_view() : found->second;
}

}  // namespace mantissa::graph
