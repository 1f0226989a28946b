#include "mantissa/engine/plan/completions.h"

#include <algorithm>

#include "mantissa/engine/plan/passes.h"

namespace mantissa::plan {

std::vector<Completion> completions(const Program& program) {
  std::vector<Completion> all;
  for (std::size_t i = 0; i < program.slots.size(); ++i) {
    const BufferId gradient = program.slots[i].gradient;
    if (gradient == kNoBuffer) continue;
    Completion c{i, all.size()};
    for (std::size_t s = 0; s < program.steps.size(); ++s) {
      if (std::ranges::find(program.steps[s].outputs, gradient) != program.steps[s].outputs.end())
        c.written = s;
    }
    c.after = c.written;
    for (const ChunkedSteps& range : program.chunked) {
      if (range.begin <= c.after && c.after < range.end) c.after = range.end - 1;
    }
    all.push_back(c);
  }
  std::ranges::stable_sort(all, {}, &Completion::written);
  const auto block = [&](const Completion& c) { return block_of(program.slots[c.slot].name); };
  for (std::size_t i = 0; i < all.size(); ++i)
    all[i].last = i + 1 == all.size() || block(all[i + 1]) != block(all[i]);
  return all;
}

}  // namespace mantissa::plan
