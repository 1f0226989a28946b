#include "mantissa/kernels/round_weights.h"

#include <algorithm>
#include <vector>

#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/scaled.h"
#include "mantissa/kernels/scaled.h"

namespace mantissa::kernels {
namespace {

/// Rows of a task whose blocks lie along columns: a multiple of all blocks.
constexpr std::size_t kRows = 64;

/// Rounds the columns of values [rows, width].
void round_columns(std::vector<float>& values, std::size_t rows, std::size_t width, WeightFormat format,
                   float tensor_scale, SimdTarget target) {
  float column[kRows];
  for (std::size_t c = 0; c < width; ++c) {
    for (std::size_t r = 0; r < rows; ++r) column[r] = values[r * width + c];
    mantissa::round_weights(format, column, rows, tensor_scale, target);
    for (std::size_t r = 0; r < rows; ++r) values[r * width + c] = column[r];
  }
}

}  // namespace

void round_weights(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from, Matrix to,
                   const WeightRounding& how) {
  const SimdTarget target = simd_target(ctx.simd);
  float tensor_scale = 1;
  if (scales_tensor(how.format))
    tensor_scale = nvfp4_tensor_scale(absolute_maximum(ctx, rows * width, from.data, from.type));
  const auto all = static_cast<std::size_t>(rows), columns = static_cast<std::size_t>(width);
  // About as many values for a task in both cases.
  const std::size_t step = how.transposed ? kRows : std::max<std::size_t>(1, (kRows << 10) / columns);
  parallel_for(ctx, static_cast<std::int64_t>((all + step - 1) / step), [&](std::int64_t task, int) {
    const std::size_t first = static_cast<std::size_t>(task) * step, n = std::min(step, all - first);
    std::vector<float> values(n * columns);
    load_row(from.data, from.type, first * columns, values.size(), values.data(), target);
    if (how.transposed) {
      round_columns(values, n, columns, how.format, tensor_scale, target);
    } else {
      for (std::size_t r = 0; r < n; ++r)
        mantissa::round_weights(how.format, values.data() + r * columns, columns, tensor_scale, target);
    }
    store_row(values.data(), values.size(), to.data, to.type, first * columns, target);
  });
}

}  // namespace mantissa::kernels
