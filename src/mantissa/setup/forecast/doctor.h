// This machine, the cost of each format on it, and the recommended preset: one value, printed as text for
// people and as JSON for programs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/engine/runtime/device.h"
#include "mantissa/kernels/processor.h"
#include "mantissa/kernels/units.h"
#include "mantissa/setup/forecast/format_costs.h"
#include "mantissa/setup/forecast/network.h"

namespace mantissa::forecast {

/// A unit that multiplies (kernels/units.h), on this machine.
struct UnitCheck {
  const kernels::Unit* unit = nullptr;
  bool present = false, used = false;
  std::string_view why;  // the reason why it is used or not
  double peak = 0;       // flop/s of multiply-adds in registers; 0 if it is not present
  double product = 0;    // flop/s of a product of its format; 0 if it is not used
};

struct Checkup {
  std::string cpu;
  unsigned cores = 0;
  int threads = 0;  // used
  std::string simd;
  std::size_t memory_bytes = 0, available_memory_bytes = 0;
  double flops_per_second = 0;            // measured rate of fused multiply-adds in f32
  double bytes_per_second = 0;            // measured
  std::vector<std::string> accelerators;  // present but not used
  std::vector<std::string> launchers;     // of MPI, on this machine
  NetworkCheck network;                   // if several ranks run
  std::vector<kernels::ProcessorFeature> features;
  std::vector<UnitCheck> units;
  Costs costs;
  std::string preset, why;  // the recommended preset
};

/// Measures this machine. Takes about two seconds.
Checkup check_machine(const runtime::Device& device);

std::string to_text(const Checkup& machine);
/// Returns the result as JSON (docs/cli/doctor.md).
std::string to_json(const Checkup& machine);

}  // namespace mantissa::forecast
