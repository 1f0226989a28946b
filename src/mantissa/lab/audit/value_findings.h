// The problems that the values of the observed steps show: what their rounding points lost.
#pragma once

#include <string_view>
#include <vector>

#include "mantissa/lab/audit/findings.h"

namespace mantissa::lab {

/// Appends the findings of overflow, saturation, underflow, errors, biases and cancellation.
void find_in_values(const Audit& audit, const Thresholds& thresholds, std::vector<Finding>& found);

/// Appends one finding for each state of the optimizer that stays as it is in a format, under rounding to
/// nearest.
void find_stuck_states(const Audit& audit, const config::RunConfig& config, const Thresholds& thresholds,
                       std::vector<Finding>& found);

/// Appends the findings of gradients that differ from those of the same step in f32 by more than the operands
/// of the policy explain.
void find_in_gradients(const Audit& audit, const Thresholds& thresholds, std::vector<Finding>& found);

/// Returns the severity of a finding that counts a share of elements.
double severity_of(std::string_view kind, double share);

}  // namespace mantissa::lab
