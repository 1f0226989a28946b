// Joins the two halves of the head to one step of the backward phase, which computes the logits once.
#include <algorithm>
#include <optional>

#include "mantissa/engine/plan/passes.h"

namespace mantissa::plan {
namespace {

double soft_cap(const Step& s) {
  return s.attributes.number("soft_cap", 0.0);
}

/// Returns true if the head also has the entry of the largest logit, which only its gradient reads.
bool wraps(const Step& s) {
  return s.attributes.number("l2wrap", 0.0) != 0;
}

bool same_operand(const Operand& a, const Operand& b) {
  return a.buffer == b.buffer && a.operand == b.operand;
}

/// Returns the backward step of the head `forward` if its incoming gradient is known before the forward phase
/// and no other step reads the results of `forward`.
std::optional<std::size_t> backward_of(const Program& p, const Step& forward) {
  const auto reads_result = [&](BufferId b) {
    return std::find(forward.outputs.begin(), forward.outputs.end(), b) != forward.outputs.end();
  };
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < p.steps.size(); ++i) {
    const Step& s = p.steps[i];
    const bool reads = (s.addend != kNoBuffer && reads_result(s.addend)) ||
                       std::any_of(s.inputs.begin(), s.inputs.end(),
                                   [&](const Operand& o) { return reads_result(o.buffer); });
    if (!reads) continue;
    const bool gradient =
        s.op->id == forward.op->joins_gradient && !found && s.scope == forward.scope &&
        s.accumulator == forward.accumulator && s.rounded == forward.rounded &&
        s.interior == forward.interior && soft_cap(s) == soft_cap(forward) &&
        std::equal(s.inputs.begin(), s.inputs.begin() + 3, forward.inputs.begin(), same_operand) &&
        p.buffer(s.inputs[4].buffer).home == Home::input;
    if (!gradient) return std::nullopt;
    found = i;
  }
  return found;
}

}  // namespace

void join_head(Program& program) {
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    Step& forward = program.steps[i];
    if (forward.op->joint.empty() || forward.outputs.size() != (wraps(forward) ? 3 : 2)) continue;
    const std::optional<std::size_t> at = backward_of(program, forward);
    if (!at) continue;
    Step& both = program.steps[*at];
    both.op = &graph::find_op(forward.op->joint);
    // The joint op computes lse, and the entry of the largest logit, itself.
    if (wraps(forward)) both.inputs.erase(both.inputs.begin() + 5);
    both.inputs.erase(both.inputs.begin() + 3);
    both.outputs.insert(both.outputs.end(), forward.outputs.begin(), forward.outputs.end());
    both.labels.insert(both.labels.end(), forward.labels.begin(), forward.labels.end());
    both.forward_results = forward.outputs.size();
    forward.phase = graph::Phase::evaluate;
  }
}

}  // namespace mantissa::plan
