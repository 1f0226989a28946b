#include "mantissa/plan/lifetimes.h"

#include "mantissa/plan/passes.h"

namespace mantissa::plan {

std::vector<Lifetime> lifetimes(const Program& program, bool keep_values) {
  std::vector<Lifetime> lives(program.buffers.size());
  const auto of = [&](BufferId b) -> Lifetime& { return lives[static_cast<std::size_t>(b)]; };
  const auto end = static_cast<std::int64_t>(program.steps.size());
  for (std::int64_t i = 0; i < end; ++i) {
    const Step& s = program.steps[static_cast<std::size_t>(i)];
    for (const Operand& o : s.inputs) of(o.buffer).add(i);
    for (const BufferId b : s.outputs) of(b).add(i);
    if (s.addend != kNoBuffer) of(s.addend).add(i);
  }
  for (std::size_t b = 0; b < lives.size(); ++b) {
    if (lives[b].used() && (keep_values || is_output(program, static_cast<BufferId>(b)))) lives[b].add(end);
  }
  return lives;
}

}  // namespace mantissa::plan
