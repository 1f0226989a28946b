// The sum of a matrix over its tokens, which is the gradient of a bias.
#pragma once

#include <cstdint>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

/// sum += Σ_t x[t]: one chain of additions from zero per block of 256 tokens, blocks into leaves, leaves into
/// `sum` (docs/numerics.md, "Sums over tokens"). x: [tokens, columns], any format; sum: [columns], f32 or
/// f64, which is also the arithmetic.
struct TokenSum {
  std::int64_t columns = 0;
  ConstMatrix x;
  Matrix sum;
  bool accumulate = false;  // false: `sum` starts at zero
};
void token_sum(const Context& ctx, const Extent& extent, const TokenSum& s);

}  // namespace mantissa::kernels
