#include "mantissa/setup/forecast/observed.h"

#include <algorithm>

#include "mantissa/engine/runtime/observer.h"
#include "mantissa/precision/policy/rule.h"

namespace mantissa::forecast {

bool is_observed(std::span<const precision::Rule> rules, const plan::Step& step, precision::Pass pass,
                 std::optional<std::int64_t> done) {
  return std::ranges::any_of(rules, [&](precision::Rule rule) {
    if (!done) rule.first_step = rule.last_step = std::nullopt;
    const auto is_of = [&](std::string_view op) {
      return !op.empty() && precision::matches(rule, {step.scope, op, pass, done.value_or(0)});
    };
    return is_of(step.op->op) || is_of(step.op->interior);
  });
}

bool is_observed(std::span<const precision::Rule> rules, const plan::Step& step,
                 std::optional<std::int64_t> done) {
  return is_observed(rules, step, plan::pass_of(step.phase), done) ||
         (step.forward_results > 0 && is_observed(rules, step, precision::Pass::forward, done));
}

std::size_t observed_bytes(std::span<const precision::Rule> rules, const plan::Program& program) {
  if (rules.empty()) return 0;
  return runtime::observer_bytes(
      program, [&](const plan::Step& step) { return is_observed(rules, step, std::nullopt); });
}

}  // namespace mantissa::forecast
