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

/// The heads of a row, of whose values the first `rotated` are rotated: in pairs (i, i + rotated / 2), or in
/// pairs of neighbours.
struct RopeHeads {
  std::int64_t heads = 0, head_dim = 0, rotated = 0;
  bool neighbours = false;
  std::int64_t low(std::int64_t pair) const { return neighbours ? 2 * pair : pair; }
  std::int64_t high(std::int64_t pair) const { return neighbours ? 2 * pair + 1 : pair + rotated / 2; }
};

/// y = x rotated, per head, by the angles position · theta^(−2i / rotated), or by their negatives if
/// `inverse`. x, y: [tokens, heads · head_dim], dense.
void rope(const Extent& extent, const RopeHeads& heads, double theta, bool inverse, const double* x,
          double* y);

}  // namespace mantissa::kernels::reference
