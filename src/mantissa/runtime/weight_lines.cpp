#include "mantissa/runtime/weight_lines.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "mantissa/kernels/columns.h"

namespace mantissa::runtime {

WeightLine weight_line(const kernels::Context& ctx, ConstMatrix matrix, std::int64_t rows, std::int64_t index,
                       bool column) {
  const std::int64_t width = matrix.ld, lines = column ? width : rows;
  std::vector<double> squares(static_cast<std::size_t>(lines)), row(static_cast<std::size_t>(width));
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto* from = static_cast<const std::byte*>(matrix.data) +
                       static_cast<std::size_t>(i * width) * bytes_of(matrix.type);
    kernels::copy_columns(ctx, 1, width, {from, matrix.type, width}, {row.data(), Scalar::f64, width});
    for (std::int64_t j = 0; j < width; ++j) {
      const double x = row[static_cast<std::size_t>(j)];
      if (std::isfinite(x)) squares[static_cast<std::size_t>(column ? j : i)] += x * x;
    }
  }
  const double terms = static_cast<double>(column ? rows : width);
  WeightLine line;
  line.rms = std::sqrt(squares[static_cast<std::size_t>(index)] / terms);
  squares.erase(squares.begin() + index);
  if (squares.empty()) return line;
  const auto middle = squares.begin() + static_cast<std::ptrdiff_t>(squares.size() / 2);
  std::nth_element(squares.begin(), middle, squares.end());
  const double median = std::sqrt(*middle / terms);
  if (median > 0) line.ratio = line.rms / median;
  return line;
}

}  // namespace mantissa::runtime
