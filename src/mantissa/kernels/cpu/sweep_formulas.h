// Sweeps whose program is one of formulas.h: run by code that was compiled from the same formula.
#pragma once

#include <cstddef>

#include "mantissa/kernels/sweep.h"

namespace mantissa::kernels {

/// Runs elements [begin, end) of a sweep.
using CompiledSweep = void (*)(const Sweep& s, std::size_t begin, std::size_t end);

/// The compiled form of `s` on the instruction set `target` (Context::target()); null where it has none.
CompiledSweep compiled_sweep(const Sweep& s, std::size_t target);

}  // namespace mantissa::kernels
