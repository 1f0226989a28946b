// Combines the uses of a tied weight in one gradient. If a step is one micro-batch, the rows of the look-up
// are complete immediately and are added to the gradient of the use before it.
#include <algorithm>

#include "mantissa/engine/plan/passes.h"
#include "mantissa/engine/plan/uses.h"

namespace mantissa::plan {
namespace {

bool writes(const Step& s, BufferId b) {
  return std::find(s.outputs.begin(), s.outputs.end(), b) != s.outputs.end();
}

/// Returns true if only `sum` adds to `gradient`, and all other writers precede the step at `lookup`.
bool is_complete(const Program& p, BufferId gradient, std::size_t lookup, const Step& sum) {
  for (std::size_t i = lookup; i < p.steps.size(); ++i) {
    if (&p.steps[i] != &sum && writes(p.steps[i], gradient)) return false;
  }
  return true;
}

/// Makes the look-up add its table of gradients, which `sum` adds so far. Replaced steps keep no outputs.
void join(Program& p, const Uses& uses, Step& sum) {
  const BufferId gradient = sum.inputs[0].buffer, table = sum.inputs[1].buffer;
  std::int64_t made = uses.writer(table);
  // For gradients narrower than the arithmetic, the table is rounded into its accumulator.
  Step* rounding = made >= 0 ? &p.steps[static_cast<std::size_t>(made)] : nullptr;
  if (rounding != nullptr && rounding->op->duty == graph::Duty::collect) {
    made = uses.writer(rounding->inputs[1].buffer);
  } else {
    rounding = nullptr;
  }
  // A rule may give the look-up's gradient a format of its own, whose rounding the sum keeps.
  if (made < 0 || p.buffer(table).type != p.buffer(gradient).type) return;
  Step& lookup = p.steps[static_cast<std::size_t>(made)];
  if (lookup.op->adding_variant.empty() || !is_complete(p, gradient, static_cast<std::size_t>(made), sum))
    return;
  lookup.op = &graph::find_op(lookup.op->adding_variant);
  lookup.inputs.insert(lookup.inputs.begin(), {gradient, p.buffer(gradient).type});
  lookup.outputs = {gradient};
  if (rounding != nullptr) rounding->outputs.clear();
  sum.outputs.clear();
  p.buffer(table).home = Home::activation;  // unused, so it gets no memory
}

}  // namespace

void join_uses(Program& program) {
  const Uses uses(program);
  for (Step& s : program.steps) {
    if (s.phase == graph::Phase::finish && s.op->duty == graph::Duty::sum) join(program, uses, s);
  }
  std::erase_if(program.steps, [](const Step& s) { return s.outputs.empty(); });
}

}  // namespace mantissa::plan
