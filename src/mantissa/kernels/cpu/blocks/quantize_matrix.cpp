#include "mantissa/kernels/quantize_matrix.h"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace mantissa::kernels {
namespace {

/// Elements of the rows that one task quantizes or reads, about.
constexpr std::size_t kPart = std::size_t{1} << 16;

/// Returns the transposed matrix of `values` [rows, width].
std::vector<float> transpose_of(const Context& ctx, std::span<const float> values, std::size_t rows,
                                std::size_t width) {
  std::vector<float> to(values.size());
  parallel_for(ctx, static_cast<std::int64_t>(width), [&](std::int64_t column, int) {
    const auto c = static_cast<std::size_t>(column);
    for (std::size_t r = 0; r < rows; ++r) to[c * rows + r] = values[r * width + c];
  });
  return to;
}

}  // namespace

ErrorStats quantize_matrix(const Context& ctx, const QuantMatrix& to, std::span<const float> values,
                           bool transposed) {
  std::vector<float> turned;
  if (transposed) {
    turned = transpose_of(ctx, values, to.width, to.rows);
    values = turned;
  }
  const std::size_t codes = quant_bytes(to.format, to.rows * to.width);
  std::fill(to.data + codes, to.data + quant_scales_begin(to.format, to.rows, to.width), std::uint8_t{0});
  const std::size_t row_scales = quant_scales(to.format, 1, to.width);
  std::vector<float> scales(to.format == QuantFormat::nf4_double ? to.rows * row_scales : 0);
  const std::size_t step = std::max<std::size_t>(1, kPart / to.width);
  const auto parts = static_cast<std::int64_t>((to.rows + step - 1) / step);
  const auto for_parts = [&](const auto& body) {
    parallel_for(ctx, parts, [&](std::int64_t part, int) {
      const std::size_t first = static_cast<std::size_t>(part) * step;
      body(static_cast<std::size_t>(part), first, std::min(step, to.rows - first));
    });
  };
  for_parts([&](std::size_t, std::size_t first, std::size_t n) {
    quantize_rows(to, first, n, values.data() + first * to.width,
                  scales.empty() ? nullptr : scales.data() + first * row_scales);
  });
  if (!scales.empty()) quantize_scales(to, scales);
  std::vector<ErrorStats> lost(static_cast<std::size_t>(parts));
  for_parts([&](std::size_t part, std::size_t first, std::size_t n) {
    const QuantRows rows = quant_rows(to.format, to.data, to.rows, to.width);
    std::vector<float> after(to.width);
    for (std::size_t r = first; r < first + n; ++r) {
      dequantize(rows, r, 0, to.width, after.data());
      lost[part].add_row(values.data() + r * to.width, after.data(), to.width, Scalar::f32);
    }
  });
  ErrorStats all;
  for (const ErrorStats& part : lost) all.merge(part);
  return all;
}

}  // namespace mantissa::kernels
