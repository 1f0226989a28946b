// What is wrong with the rules of a policy: those that match nothing, change nothing, or begin too late.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "mantissa/plan/program.h"

namespace mantissa::plan {

/// The programs of a run under a policy (training and its update), with formats assigned and nothing else
/// done.
using Lower = std::function<std::vector<Program>(const precision::Policy&)>;

/// "rule 2 "*.ln_f: compute=f32" matches nothing: did you mean "model.norm"?" for each rule that matches in
/// none of `programs`, which have one policy.
std::vector<std::string> rule_warnings(std::span<const Program* const> programs);
std::vector<std::string> rule_warnings(const Program& program);

/// The same of a run of `steps` steps, and of rules that match something and without which every format would
/// be the same: "rule 1 "*.up_proj: compute=f32" changes nothing: …". A rule is warned of that is so in every
/// part of the run in which it holds, or that holds in none.
std::vector<std::string> rule_warnings(const Lower& lower, const precision::Policy& policy,
                                       std::int64_t steps);
std::vector<std::string> rule_warnings(const graph::Graph& graph, const precision::Policy& policy,
                                       std::int64_t steps);

/// The rules of `policy` that match something, and without which every format would be the same.
std::vector<std::size_t> idle_rules(const Lower& lower, const precision::Policy& policy);
std::vector<std::size_t> idle_rules(const graph::Graph& graph, const precision::Policy& policy);

/// The rules that match in none of `programs`.
std::vector<std::size_t> unmatched_rules(std::span<const Program> programs);

}  // namespace mantissa::plan
