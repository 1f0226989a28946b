// Faults in the rules of a policy: rules that match nothing, have no effect, or start too late.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mantissa/engine/plan/program.h"

namespace mantissa::plan {

/// Returns a program under a policy, with its update if it trains, after only the assignment of formats.
using Lower = std::function<Program(const precision::Policy&)>;

/// Returns for example "rule 2 "*.ln_f: compute=f32" matches nothing: did you mean "model.norm"?", for each
/// rule that matches neither in `program` nor in its update. Leaves out those of inserted_step_warnings().
std::vector<std::string> rule_warnings(const Program& program);

/// Returns the warnings for rules that name a step which plans insert, such as op=quantize: they match
/// nothing under any policy and model.
std::vector<std::string> inserted_step_warnings(const precision::Policy& policy);

/// Returns the warnings for a run of `steps` steps, including those for rules that match something without
/// effect on any format: "rule 1 "*.up_proj: compute=f32" changes nothing: …". A rule is reported if this is
/// so in every part of the run in which it holds, or if it holds in none.
std::vector<std::string> rule_warnings(const Lower& lower, const precision::Policy& policy,
                                       std::int64_t steps);

/// Throws ConfigError with the first of rule_warnings(), if there is one.
void check_rules(const Program& program);

/// Returns the rules of `policy` that match something without effect on any format.
std::vector<std::size_t> idle_rules(const Lower& lower, const precision::Policy& policy);

/// Returns the rules of a program's policy that match neither in it nor in its update.
std::vector<std::size_t> unmatched_rules(const Program& program);

}  // namespace mantissa::plan
