#include "mantissa/engine/plan/rules.h"

#include <fmt/format.h>

#include <algorithm>

#include "mantissa/core/base/counted.h"
#include "mantissa/core/base/error.h"
#include "mantissa/engine/graph/inserted.h"
#include "mantissa/engine/plan/explain.h"
#include "mantissa/engine/plan/passes.h"
#include "mantissa/precision/policy/coverage.h"

namespace mantissa::plan {
namespace {

std::string rule_text(const precision::Policy& policy, std::size_t r) {
  const precision::Rule& rule = policy.rules()[r];
  return fmt::format("{} \"{}\"", rule.origin.empty() ? fmt::format("rule {}", r + 1) : rule.origin,
                     rule.str());
}

/// Returns why no rule matches `op`, which explain lists, or "" for other ops. `updates` are the names of the
/// steps of the update.
std::string why_unruled(const std::string& op, const std::vector<std::string>& updates) {
  if (const std::string_view does = graph::inserted_step(op); !does.empty()) {
    return fmt::format(
        "\"{}\" is not an op of the model. A plan inserts steps of this name where an op needs them: each "
        "{}. Fix: name that op, such as op=matmul (operand=gradient selects one operand)",
        op, does);
  }
  if (std::ranges::find(updates, op) == updates.end()) return "";
  return fmt::format("\"{}\" is a part of the update of the weights. Fix: write op=update", op);
}

bool names_inserted_step(const precision::Rule& rule) {
  return !graph::inserted_step(rule.op).empty();
}

std::string unmatched_text(const precision::Policy& policy, std::size_t r,
                           const std::vector<precision::Place>& places,
                           const std::vector<std::string>& updates) {
  std::string why = why_unruled(policy.rules()[r].op, updates);
  if (why.empty()) why = precision::why_unmatched(policy.rules()[r], places);
  return fmt::format("{} matches nothing{}", rule_text(policy, r),
                     why.empty() ? "; explain lists the scopes and ops" : ": " + why);
}

std::vector<precision::Place> places_of(const Program& p) {
  std::vector<precision::Place> places = p.places;
  if (p.update) places.insert(places.end(), p.update->places.begin(), p.update->places.end());
  return places;
}

/// Returns the names of the steps of a program's update, as explain lists them.
std::vector<std::string> updates_of(const Program& p) {
  std::vector<std::string> names;
  if (p.update) {
    for (const PlanRow& row : update_rows(*p.update)) {
      const auto matches = [&](const precision::Place& place) { return place.op == row.op; };
      if (std::ranges::none_of(places_of(p), matches)) names.push_back(row.op);
    }
  }
  return names;
}

}  // namespace

std::vector<std::size_t> unmatched_rules(const Program& p) {
  std::vector<std::size_t> unmatched = p.unmatched_rules;
  if (p.update) {
    const std::vector<std::size_t>& there = p.update->unmatched_rules;
    std::erase_if(unmatched, [&](std::size_t r) { return std::ranges::find(there, r) == there.end(); });
  }
  return unmatched;
}

std::vector<std::string> rule_warnings(const Program& p) {
  std::vector<std::string> out;
  for (const std::size_t r : unmatched_rules(p)) {
    if (!names_inserted_step(p.policy.rules()[r]))
      out.push_back(unmatched_text(p.policy, r, places_of(p), updates_of(p)));
  }
  return out;
}

std::vector<std::string> inserted_step_warnings(const precision::Policy& policy) {
  std::vector<std::string> out;
  for (std::size_t r = 0; r < policy.rules().size(); ++r) {
    if (names_inserted_step(policy.rules()[r])) out.push_back(unmatched_text(policy, r, {}, {}));
  }
  return out;
}

void check_rules(const Program& program) {
  const std::vector<std::string> warnings = rule_warnings(program);
  if (!warnings.empty()) throw ConfigError(warnings.front());
}

std::vector<std::string> rule_warnings(const Lower& lower, const precision::Policy& policy,
                                       std::int64_t steps) {
  struct Found {
    bool holds = false, matches = false, idle = true;
  };
  std::vector<Found> found(policy.rules().size());
  std::vector<precision::Place> places;
  std::vector<std::string> updates;
  std::vector<std::int64_t> firsts = policy.changes();
  firsts.insert(firsts.begin(), 0);
  for (const std::int64_t first : firsts) {
    if (first >= steps) break;
    const precision::Policy part = policy.at_step(first);
    const Program program = lower(part);
    const std::vector<std::size_t> unmatched = unmatched_rules(program), idle = idle_rules(lower, part);
    const std::vector<std::size_t> here = policy.rules_at(first);
    for (std::size_t i = 0; i < here.size(); ++i) {
      Found& rule = found[here[i]];
      rule.holds = true;
      rule.matches |= std::ranges::find(unmatched, i) == unmatched.end();
      rule.idle &= std::ranges::find(idle, i) != idle.end();
    }
    if (unmatched.empty()) continue;
    places = places_of(program);
    updates = updates_of(program);
  }
  std::vector<std::string> out;
  for (std::size_t r = 0; r < found.size(); ++r) {
    if (!found[r].holds) {
      out.push_back(fmt::format("{} holds from step {} on, but the run has {}", rule_text(policy, r),
                                policy.rules()[r].first_step.value_or(0), counted(steps, "step")));
    } else if (!found[r].matches) {
      out.push_back(unmatched_text(policy, r, places, updates));
    } else if (found[r].idle) {
      out.push_back(rule_text(policy, r) + " changes nothing: without it every format is the same");
    }
  }
  return out;
}

}  // namespace mantissa::plan
