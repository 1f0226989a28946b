// The steps of the plan that log.observe selects, and the memory that observing them takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "mantissa/engine/plan/program.h"
#include "mantissa/precision/policy/policy.h"

namespace mantissa::forecast {

/// Returns true if one of `rules` selects the results of a step of the plan in `pass`, after `done` steps of
/// the run; without `done`, at any of its steps.
bool is_observed(std::span<const precision::Rule> rules, const plan::Step& step, precision::Pass pass,
                 std::optional<std::int64_t> done);
/// The same for the step's own pass, and for the forward pass if it has results of it.
bool is_observed(std::span<const precision::Rule> rules, const plan::Step& step,
                 std::optional<std::int64_t> done);

/// Returns the bytes that a run takes to observe what `rules` select.
std::size_t observed_bytes(std::span<const precision::Rule> rules, const plan::Program& program);

}  // namespace mantissa::forecast
