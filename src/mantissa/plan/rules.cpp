#include "mantissa/plan/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/base/error.h"
#include "mantissa/plan/passes.h"
#include "mantissa/precision/coverage.h"

namespace mantissa::plan {
namespace {

std::string rule_text(const precision::Policy& policy, std::size_t r) {
  const precision::Rule& rule = policy.rules()[r];
  return fmt::format("{} \"{}\"", rule.origin.empty() ? fmt::format("rule {}", r + 1) : rule.origin,
                     rule.str());
}

std::string unmatched_text(const precision::Policy& policy, std::size_t r,
                           const std::vector<precision::Place>& places) {
  const std::string why = precision::why_unmatched(policy.rules()[r], places);
  return fmt::format("{} matches nothing{}", rule_text(policy, r),
                     why.empty() ? "; explain lists the scopes and ops" : ": " + why);
}

}  // namespace

std::vector<std::string> rule_warnings(const Program& p) {
  std::vector<std::string> out;
  for (const std::size_t r : p.unmatched_rules) out.push_back(unmatched_text(p.policy, r, p.places));
  return out;
}

void check_rules(const Program& program) {
  const std::vector<std::string> warnings = rule_warnings(program);
  if (!warnings.empty()) throw ConfigError(warnings.front());
}

std::vector<std::string> rule_warnings(const graph::Graph& graph, const precision::Policy& policy,
                                       std::int64_t steps) {
  struct Found {
    bool holds = false, matches = false, idle = true;
  };
  std::vector<Found> found(policy.rules().size());
  std::vector<precision::Place> places;
  std::vector<std::int64_t> firsts = policy.changes();
  firsts.insert(firsts.begin(), 0);
  for (const std::int64_t first : firsts) {
    if (first >= steps) break;
    const precision::Policy part = policy.at_step(first);
    Program program = assign_formats(graph, part);
    const std::vector<std::size_t> unmatched = program.unmatched_rules, idle = idle_rules(graph, part);
    const std::vector<std::size_t> here = policy.rules_at(first);
    for (std::size_t i = 0; i < here.size(); ++i) {
      Found& rule = found[here[i]];
      rule.holds = true;
      rule.matches |= std::ranges::find(unmatched, i) == unmatched.end();
      rule.idle &= std::ranges::find(idle, i) != idle.end();
    }
    if (!unmatched.empty()) places = std::move(program.places);
  }
  std::vector<std::string> out;
  for (std::size_t r = 0; r < found.size(); ++r) {
    if (!found[r].holds) {
      out.push_back(fmt::format("{} speaks of steps from {} on, and the run has {}", rule_text(policy, r),
                                policy.rules()[r].first_step.value_or(0), steps));
    } else if (!found[r].matches) {
      out.push_back(unmatched_text(policy, r, places));
    } else if (found[r].idle) {
      out.push_back(rule_text(policy, r) + " changes nothing: without it every format is the same");
    }
  }
  return out;
}

}  // namespace mantissa::plan
