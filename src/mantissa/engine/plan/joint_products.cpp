#include "mantissa/engine/plan/joint_products.h"

#include <algorithm>
#include <cstdint>

namespace mantissa::plan {

std::vector<std::size_t> joint_products(const Program& program) {
  const std::vector<Step>& steps = program.steps;
  const auto is_product = [](const Step& s) {
    return s.op->product != nullptr && s.phase == graph::Phase::forward && s.addend == kNoBuffer;
  };
  std::vector<std::size_t> ends;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    std::size_t end = i + 1;
    const auto reads_result = [&](const Operand& o) {
      return std::any_of(steps.begin() + static_cast<std::ptrdiff_t>(i),
                         steps.begin() + static_cast<std::ptrdiff_t>(end),
                         [&](const Step& s) { return s.outputs[0] == o.buffer; });
    };
    while (is_product(steps[i]) && end < steps.size() && is_product(steps[end]) &&
           steps[end].op == steps[i].op && std::ranges::none_of(steps[end].inputs, reads_result))
      ++end;
    ends.push_back(end);
  }
  return ends;
}

void extend_over_joint_products(const Program& program, std::vector<Lifetime>& lives) {
  const std::vector<std::size_t> ends = joint_products(program);
  for (std::size_t i = 0; i < ends.size(); i = ends[i]) {
    for (std::size_t step = i; step + 1 < ends[i]; ++step) {
      for (const Operand& o : program.steps[step].inputs)
        lives[static_cast<std::size_t>(o.buffer)].add(static_cast<std::int64_t>(ends[i]) - 1);
    }
  }
}

}  // namespace mantissa::plan
