// The rows and columns of a matrix that are much larger than the others.
#pragma once

#include <cstdint>

#include "mantissa/kernels/context.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::runtime {

/// A row or column of a matrix.
struct WeightLine {
  double rms = 0;
  double ratio = 0;  // to the median of the matrix's other rows or columns; 0 if that is zero
};

/// Returns row `index` (column `index` if `column` is true) of a dense matrix of `rows` rows.
WeightLine weight_line(const kernels::Context& ctx, ConstMatrix matrix, std::int64_t rows, std::int64_t index,
                       bool column);

}  // namespace mantissa::runtime
