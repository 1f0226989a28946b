// What is wrong with the rules of a policy: those that match nothing, change nothing, or begin too late.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/plan/program.h"

namespace mantissa::plan {

/// "rule 2 "*.ln_f: compute=f32" matches nothing: did you mean "model.norm"?" for each rule without a match.
std::vector<std::string> rule_warnings(const Program& program);

/// The same of a run of `steps` steps, and of rules that match something and without which every format would
/// be the same: "rule 1 "*.up_proj: compute=f32" changes nothing: …". A rule is warned of that is so in every
/// part of the run in which it holds, or that holds in none.
std::vector<std::string> rule_warnings(const graph::Graph& graph, const precision::Policy& policy,
                                       std::int64_t steps);

/// Throws ConfigError with the first of rule_warnings(), where there is one.
void check_rules(const Program& program);

/// The rules of `policy` that match something in `graph`, and without which every format would be the same.
std::vector<std::size_t> idle_rules(const graph::Graph& graph, const precision::Policy& policy);

}  // namespace mantissa::plan
