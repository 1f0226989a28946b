// The parts of a weight that are much larger than the others, or beyond a format.
#pragma once

#include <cstdint>
#include <optional>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::runtime {

/// A row or column of a matrix.
struct WeightLine {
  double rms = 0;
  double ratio = 0;  // to the median of the matrix's other rows or columns; 0 if that is zero
};

/// Returns row `index` (column `index` if `column` is true) of a dense matrix of `rows` rows.
WeightLine weight_line(const kernels::Context& ctx, ConstMatrix matrix, std::int64_t rows, std::int64_t index,
                       bool column);

/// The largest element of a weight that is beyond a format.
struct BeyondFormat {
  std::int64_t row = 0, column = 0;
  double value = 0;
  std::int64_t count = 0;  // elements of the weight that are beyond the format
};

/// Returns the largest finite element, by magnitude, of a dense matrix of `rows` rows that overflows when
/// rounded to `format`, or null.
std::optional<BeyondFormat> beyond_format(const kernels::Context& ctx, ConstMatrix matrix, std::int64_t rows,
                                          Scalar format);

}  // namespace mantissa::runtime
