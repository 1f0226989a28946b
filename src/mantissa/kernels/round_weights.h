// Weights rounded to the format in which they will be served (core/numeric/weight_format.h), on all threads.
#pragma once

#include <cstdint>

#include "mantissa/core/numeric/weight_format.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

/// How a weight is rounded.
struct WeightRounding {
  WeightFormat format = WeightFormat::none;
  /// Blocks lie along columns, from the first row on: the weight of a layer is stored as [inputs, outputs].
  /// Else they lie along rows.
  bool transposed = false;
  friend bool operator==(const WeightRounding&, const WeightRounding&) = default;
};

/// Writes `from` [rows, width], dense, rounded by `how` in f32 and then to nearest in to.type. The sides
/// along which blocks lie are multiples of block_of(how.format). The result depends on the values alone.
void round_weights(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from, Matrix to,
                   const WeightRounding& how);

}  // namespace mantissa::kernels
