// Rotary position embedding as the formulas say, in double. The kernels are judged by this.
#pragma once

#include <cstdint>

#include "mantissa/tensor/extent.h"

namespace mantissa::kernels::reference {

/// y = x rotated, per head, by the angles position · theta^(−2i / head_dim); by their negatives where
/// `inverse`. x, y: [tokens, heads · head_dim], dense.
void rope(const Extent& extent, std::int64_t heads, std::int64_t head_dim, double theta, bool inverse,
          const double* x, double* y);

}  // namespace mantissa::kernels::reference
