// The instruction sets with tiles that tests can run here.
#pragma once

#include <vector>

#include "kernels/amx_emulator.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels::testing {

/// Returns amx_model, and amx if the processor has it or the emulator replaces it. Kernels take either in a
/// Context, though is_supported(Simd::amx) remains false under the emulator.
inline std::vector<Simd> tile_simds() {
  std::vector<Simd> all;
  if (tile_hardware() != TileHardware::none) all.push_back(Simd::amx);
  if (is_supported(Simd::amx_model)) all.push_back(Simd::amx_model);
  return all;
}

}  // namespace mantissa::kernels::testing
