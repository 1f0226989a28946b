// A precision policy and its rules, one on each line. What is accepted prints as text that reads as the same
// policy.
#include <optional>
#include <string>
#include <string_view>

#include "check.h"
#include "mantissa/precision/policy/compute.h"
#include "mantissa/precision/policy/loss_scale.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/precision/policy/rule.h"
#include "target.h"

using namespace mantissa;
using precision::Policy;

namespace {

std::string_view take_line(std::string_view& text) {
  const std::size_t end = std::min(text.find('\n'), text.size());
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return line;
}

void check_rule(std::string_view line) {
  std::optional<precision::Rule> rule;
  fuzz::expect_only_errors([&] { rule = precision::parse_rule(line, ""); });
  if (!rule) return;
  const std::string printed = rule->str();
  fuzz::expect_only_errors([&] {
    fuzz::require(precision::parse_rule(printed, "") == *rule, "a printed rule is the same rule");
    rule.reset();
  });
  fuzz::require(!rule, "a printed rule can be parsed");
}

}  // namespace

MANTISSA_FUZZ_TARGET(policy, nullptr) {
  std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::string_view line = take_line(text);
  precision::Compute::parse(line);
  fuzz::expect_only_errors([&] { precision::parse_loss_scale(line); });
  std::optional<Policy> policy;
  fuzz::expect_only_errors([&] {
    std::vector<std::string> notes;
    policy = Policy::parse(line, &notes);
  });
  while (!text.empty()) {
    const std::string_view rule = take_line(text);
    check_rule(rule);
    fuzz::expect_only_errors([&] {
      if (policy) policy = policy->with_rule(rule, "--rule");
    });
  }
  if (!policy) return 0;
  fuzz::expect_only_errors([&] {
    for (const char* op : {"matmul", "softmax", "rmsnorm", "adamw"}) {
      const precision::Use use{.scope = "model.layers.0.mlp.up_proj", .op = op, .operand = "input"};
      policy->resolve(use);
      policy->interior(use);
      policy->update_compute(use);
      policy->matching_rules(use);
    }
  });
  for (const std::int64_t step : policy->changes()) policy->at_step(step);
  fuzz::expect_only_errors([&] {
    fuzz::require(Policy::parse(policy->line()) == *policy, "a printed policy is the same policy");
    policy.reset();
  });
  fuzz::require(!policy, "a printed policy can be parsed");
  return 0;
}
