// What is wrong with the rules of a policy: those that match nothing, change nothing, or begin too late.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mantissa/plan/program.h"

namespace mantissa::plan {

/// A program under a policy, and its update where it trains, with formats assigned and nothing else done.
using Lower = std::function<Program(const precision::Policy&)>;

/// "rule 2 "*.ln_f: compute=f32" matches nothing: did you mean "model.norm"?" for each rule that matches
/// neither in `program` nor in its update.
std::vector<std::string> rule_warnings(const Program& program);

/// The same of a run of `steps` steps, and of rules that match something and without which every format would
/// be the same: "rule 1 "*.up_proj: compute=f32" changes nothing: …". A rule is warned of that is so in every
/// part of the run in which it holds, or that holds in none.
std::vector<std::string> rule_warnings(const Lower& lower, const precision::Policy& policy,
                                       std::int64_t steps);
std::vector<std::string> rule_warnings(const graph::Graph& graph, const precision::Policy& policy,
                                       std::int64_t steps);

/// Throws ConfigError with the first of rule_warnings(), where there is one.
void check_rules(const Program& program);

/// The rules of `policy` that match something, and without which every format would be the same.
std::vector<std::size_t> idle_rules(const Lower& lower, const precision::Policy& policy);
std::vector<std::size_t> idle_rules(const graph::Graph& graph, const precision::Policy& policy);

/// The rules of a program's policy that match neither in it nor in its update.
std::vector<std::size_t> unmatched_rules(const Program& program);

}  // namespace mantissa::plan
