#include "mantissa/engine/runtime/weight_lines.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "mantissa/core/numeric/round.h"
#include "mantissa/kernels/columns.h"
#include "mantissa/kernels/loss_count.h"

namespace mantissa::runtime {
namespace {

/// Calls `see` with the index and the elements, in f64, of each row.
template <class See>
void each_row(const kernels::Context& ctx, ConstMatrix matrix, std::int64_t rows, const See& see) {
  std::vector<double> row(static_cast<std::size_t>(matrix.ld));
  for (std::int64_t i = 0; i < rows; ++i) {
    const auto* from = static_cast<const std::byte*>(matrix.data) +
                       static_cast<std::size_t>(i * matrix.ld) * bytes_of(matrix.type);
    kernels::copy_columns(ctx, 1, matrix.ld, {from, matrix.type, matrix.ld},
                          {row.data(), Scalar::f64, matrix.ld});
    see(i, row);
  }
}

}  // namespace

WeightLine weight_line(const kernels::Context& ctx, ConstMatrix matrix, std::int64_t rows, std::int64_t index,
                       bool column) {
  const std::int64_t width = matrix.ld, lines = column ? width : rows;
  std::vector<double> squares(static_cast<std::size_t>(lines));
  each_row(ctx, matrix, rows, [&](std::int64_t i, const std::vector<double>& row) {
    for (std::size_t j = 0; j < row.size(); ++j) {
      const double x = row[j];
      if (std::isfinite(x)) squares[column ? j : static_cast<std::size_t>(i)] += x * x;
    }
  });
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

std::optional<BeyondFormat> beyond_format(const kernels::Context& ctx, ConstMatrix matrix, std::int64_t rows,
                                          Scalar format) {
  const std::int64_t count = rows * matrix.ld;
  if (kernels::count_beyond(ctx, count, matrix.data, matrix.type, traits(format).max_finite) == 0)
    return std::nullopt;
  BeyondFormat largest;
  each_row(ctx, matrix, rows, [&](std::int64_t i, const std::vector<double>& row) {
    for (std::size_t j = 0; j < row.size(); ++j) {
      const double x = row[j];
      if (!std::isfinite(x) || std::isfinite(round_to(x, format))) continue;
      ++largest.count;
      if (std::abs(x) <= std::abs(largest.value)) continue;
      largest.row = i;
      largest.column = static_cast<std::int64_t>(j);
      largest.value = x;
    }
  });
  if (largest.count == 0) return std::nullopt;
  return largest;
}

}  // namespace mantissa::runtime
