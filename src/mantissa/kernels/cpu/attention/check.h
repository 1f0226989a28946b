// Checks the order of sums that a caller of attention asks for.
#pragma once

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/numeric/factor.h"

namespace mantissa::kernels {

/// Throws DtypeError if attention in `arithmetic` has no tile order and `order` is tile.
inline void check_order(SumOrder order, Scalar arithmetic) {
  if (order == SumOrder::chain || arithmetic != Scalar::f64) return;
  throw DtypeError("attention: tile order is for f32 arithmetic, got {}", name(arithmetic));
}

}  // namespace mantissa::kernels
