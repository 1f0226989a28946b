// Reference for rotary position embedding by its formulas, in double.
#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/kernels/rope_scaling.h"

namespace mantissa::kernels::reference {

/// Returns the angle per position of each pair: theta^(−2i / head_dim), scaled for sequences of `length`
/// positions.
std::vector<double> inverse_frequencies(std::int64_t head_dim, double theta, const RopeScaling& scaling,
                                        std::int64_t length);

/// y = x rotated, per head, by the angles position · theta^(−2i / head_dim), or by their negatives if
/// `inverse`. x, y: [tokens, heads · head_dim], dense.
void rope(const Extent& extent, std::int64_t heads, std::int64_t head_dim, double theta, bool inverse,
          const double* x, double* y);

}  // namespace mantissa::kernels::reference
