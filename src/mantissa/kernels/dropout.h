// Dropout (Srivastava et al., JMLR 15, 2014) with masks that depend on nothing but the seed, a name, the
// sequence, the position and the feature: not on threads, micro-batches, chunks or instruction sets, and the
// backward pass has the mask of the forward pass without keeping it.
#pragma once

#include <cmath>
#include <cstdint>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

/// A value is dropped if its 32 random bits, as a number, are below rate · 2^32; others are multiplied by
/// 1 / (1 − rate).
struct Dropout {
  double rate = 0;         // in [0, 1); 0: none
  std::uint64_t name = 0;  // hash_name() of what is dropped
  std::uint64_t seed = 0;  // of the run

  std::uint32_t threshold() const { return static_cast<std::uint32_t>(std::llround(std::ldexp(rate, 32))); }
  double factor() const { return 1 / (1 - rate); }
};

/// to[t, i] = from[t, i] · factor, or 0 if it is dropped, rounded once to to.type. Both are dense [tokens,
/// width]. The bits of (seed, RandomUse::dropout, name, sequence) are those at position · width + i.
void dropout(const Context& ctx, const Extent& extent, std::int64_t width, ConstMatrix from, Matrix to,
             const Dropout& how);

}  // namespace mantissa::kernels
