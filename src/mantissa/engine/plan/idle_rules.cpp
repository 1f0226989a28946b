// Rules that match something but have no effect.
#include <algorithm>
#include <tuple>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/plan/explain.h"
#include "mantissa/engine/plan/rules.h"

namespace mantissa::plan {
namespace {

precision::Policy without(const precision::Policy& policy, std::size_t rule) {
  precision::Policy out = precision::Policy().with_fields(policy.fields());
  for (std::size_t i = 0; i < policy.rules().size(); ++i) {
    if (i != rule) out = out.with_rule(policy.rules()[i]);
  }
  return out;
}

bool same_accumulator(const Step& a, const Step& b) {
  return rounds_sums(a) == rounds_sums(b) && a.accumulator.order == b.accumulator.order &&
         (!(rounds_sums(a) || has_card(a)) || a.accumulator == b.accumulator);
}

/// Returns true if the difference in `Step::compute` has no effect. The operand gives the format of a factor
/// that a step reads; `compute` is that of factors that kernels compute themselves: P, dS and the gradient of
/// logits.
bool same_compute(const Step& a, const Step& b) {
  if (!a.op->made_factors.empty()) return a.compute == b.compute;
  if (a.op->duty != graph::Duty::rounding) return true;
  return a.compute.saturate == b.compute.saturate && a.compute.flush_subnormals == b.compute.flush_subnormals;
}

bool same(const Step& a, const Step& b) {
  const auto same_operand = [](const Operand& x, const Operand& y) {
    return x.buffer == y.buffer && x.operand == y.operand;
  };
  return a.op == b.op && a.outputs == b.outputs && a.rounded == b.rounded && same_compute(a, b) &&
         same_accumulator(a, b) && a.interior == b.interior && a.normalized == b.normalized &&
         a.rounding == b.rounding && a.attributes.items() == b.attributes.items() &&
         std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(), b.inputs.end(), same_operand);
}

bool same(const Buffer& a, const Buffer& b) {
  return a.type == b.type && a.home == b.home && a.scaled == b.scaled && a.served == b.served &&
         a.codes == b.codes;
}

bool same(const ScaleSlot& a, const ScaleSlot& b) {
  return std::tie(a.name, a.current, a.margin, a.history) == std::tie(b.name, b.current, b.margin, b.history);
}

/// Returns true if two programs over one graph round and sum alike everywhere. A different rule in
/// `decided_by` does not count.
bool same(const Program& a, const Program& b) {
  const auto all = [](const auto& x, const auto& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                      [](const auto& l, const auto& r) { return same(l, r); });
  };
  const bool updates = a.update && b.update ? same(*a.update, *b.update) : !a.update && !b.update;
  return updates && all(a.steps, b.steps) && all(a.buffers, b.buffers) && all(a.scales, b.scales) &&
         a.softmax == b.softmax;
}

/// Returns true if `policy` rounds like `program` everywhere. A policy that the plan rejects does not.
bool same_under(const Lower& lower, const precision::Policy& policy, const Program& program) {
  try {
    return same(program, lower(policy));
  } catch (const ConfigError&) {
    return false;
  }
}

}  // namespace

std::vector<std::size_t> idle_rules(const Lower& lower, const precision::Policy& policy) {
  std::vector<std::size_t> idle;
  if (policy.rules().empty()) return idle;
  const Program program = lower(policy);
  const std::vector<std::size_t> unmatched = unmatched_rules(program);
  for (std::size_t r = 0; r < policy.rules().size(); ++r) {
    const bool matches = std::ranges::find(unmatched, r) == unmatched.end();
    if (matches && same_under(lower, without(policy, r), program)) idle.push_back(r);
  }
  return idle;
}

}  // namespace mantissa::plan
