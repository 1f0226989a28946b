#include "mantissa/plan/rules.h"

#include <fmt/format.h>

#include <algorithm>

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

/// The rules that match in none of the programs, by pointer.
std::vector<std::size_t> unmatched_in(std::span<const Program* const> programs) {
  std::vector<std::size_t> unmatched;
  for (const std::size_t r : programs.front()->unmatched_rules) {
    const auto misses = [r](const Program* p) {
      return std::ranges::find(p->unmatched_rules, r) != p->unmatched_rules.end();
    };
    if (std::ranges::all_of(programs, misses)) unmatched.push_back(r);
  }
  return unmatched;
}

std::vector<const Program*> pointers(std::span<const Program> programs) {
  std::vector<const Program*> all;
  for (const Program& p : programs) all.push_back(&p);
  return all;
}

std::vector<precision::Place> places_of(std::span<const Program* const> programs) {
  std::vector<precision::Place> places;
  for (const Program* p : programs) places.insert(places.end(), p->places.begin(), p->places.end());
  return places;
}

Lower lowering_of(const graph::Graph& graph) {
  return [&graph](const precision::Policy& policy) {
    std::vector<Program> programs;
    programs.push_back(assign_formats(graph, policy));
    return programs;
  };
}

}  // namespace

std::vector<std::size_t> unmatched_rules(std::span<const Program> programs) {
  return unmatched_in(pointers(programs));
}

std::vector<std::string> rule_warnings(std::span<const Program* const> programs) {
  std::vector<std::string> out;
  const std::vector<precision::Place> places = places_of(programs);
  for (const std::size_t r : unmatched_in(programs))
    out.push_back(unmatched_text(programs.front()->policy, r, places));
  return out;
}

std::vector<std::string> rule_warnings(const Program& program) {
  const Program* const one = &program;
  return rule_warnings({&one, 1});
}

std::vector<std::string> rule_warnings(const graph::Graph& graph, const precision::Policy& policy,
                                       std::int64_t steps) {
  return rule_warnings(lowering_of(graph), policy, steps);
}

std::vector<std::size_t> idle_rules(const graph::Graph& graph, const precision::Policy& policy) {
  return idle_rules(lowering_of(graph), policy);
}

std::vector<std::string> rule_warnings(const Lower& lower, const precision::Policy& policy,
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
    const std::vector<Program> programs = lower(part);
    const std::vector<std::size_t> unmatched = unmatched_rules(programs), idle = idle_rules(lower, part);
    const std::vector<std::size_t> here = policy.rules_at(first);
    for (std::size_t i = 0; i < here.size(); ++i) {
      Found& rule = found[here[i]];
      rule.holds = true;
      rule.matches |= std::ranges::find(unmatched, i) == unmatched.end();
      rule.idle &= std::ranges::find(idle, i) != idle.end();
    }
    if (!unmatched.empty()) places = places_of(pointers(programs));
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
