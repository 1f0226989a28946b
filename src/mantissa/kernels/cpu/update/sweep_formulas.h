// Compiled code for sweeps whose program is one of formulas.h, from the same formula.
#pragma once

#include <cstddef>

#include "mantissa/kernels/sweep.h"

namespace mantissa::kernels {

/// Runs elements [begin, end) of a sweep.
using CompiledSweep = void (*)(const Sweep& s, std::size_t begin, std::size_t end);

/// Returns the compiled form of `s` for the instruction set `target` (Context::target()), or null.
CompiledSweep compiled_sweep(const Sweep& s, std::size_t target);

}  // namespace mantissa::kernels
