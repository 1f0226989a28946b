// The units that compute the products of a plan on this machine.
#pragma once

#include <string>
#include <vector>

#include "mantissa/engine/plan/explain.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/kernels/units.h"
#include "mantissa/setup/forecast/forecast.h"

namespace mantissa::explain {

/// One unit and the products of the plan that it computes.
struct UnitUse {
  const kernels::Unit* unit = nullptr;
  double peak = 0;                // measured flop/s of multiply-adds in registers
  double relative_to_fma = 1;     // the same, as a multiple of FMA's peak
  std::vector<std::string> uses;  // for each format of factors its ops: "bf16 in matmul, log_prob"
};

/// Returns the names of the units that compute the products of a row, "VDPBF16PS", or "".
std::string unit_names(const plan::PlanRow& row, const runtime::Device& device);

/// Returns the units of all rows, the fastest first. Uses that a faster unit of the set could compute, but
/// for the kernel, state the reason: "bf16 in attention (operands in place)".
std::vector<UnitUse> unit_uses(const std::vector<plan::PlanRow>& rows, const forecast::Machine& machine,
                               const runtime::Device& device);

}  // namespace mantissa::explain
