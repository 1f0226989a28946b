#include "mantissa/engine/plan/lifetimes.h"

#include "mantissa/engine/plan/passes.h"

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
    if (s.leaf != kNoBuffer) of(s.leaf).add(i);
  }
  for (const Gather& g : program.gathers) of(g.buffer).add(static_cast<std::int64_t>(g.start));
  for (const Reduction& r : program.reductions) {
    of(program.slots[r.slot].gradient).add(static_cast<std::int64_t>(r.after));
    of(r.sent).add(static_cast<std::int64_t>(r.after));
    of(r.sent).add(static_cast<std::int64_t>(r.until));
  }
  for (std::size_t b = 0; b < lives.size(); ++b) {
    if (lives[b].used() && (keep_values || is_output(program, static_cast<BufferId>(b)))) lives[b].add(end);
  }
  return lives;
}

void extend_over_chunks(const Program& program, std::vector<Lifetime>& lives) {
  for (const ChunkedSteps& range : program.chunked) {
    const auto extend = [&](BufferId id) {
      if (id == kNoBuffer || program.buffer(id).chunk > 0) return;
      lives[static_cast<std::size_t>(id)].add(static_cast<std::int64_t>(range.begin));
      lives[static_cast<std::size_t>(id)].add(static_cast<std::int64_t>(range.end) - 1);
    };
    for (std::size_t i = range.begin; i < range.end; ++i) {
      const Step& s = program.steps[i];
      for (const Operand& o : s.inputs) extend(o.buffer);
      for (const BufferId b : s.outputs) extend(b);
      extend(s.addend);
      extend(s.leaf);
    }
  }
}

}  // namespace mantissa::plan
