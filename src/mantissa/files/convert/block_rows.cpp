#include "mantissa/files/convert/block_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace mantissa::convert {
namespace {

float round_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  const auto back = static_cast<double>(nearest);
  if (back == x || !std::isfinite(nearest)) return nearest;
  const auto code = std::bit_cast<std::uint32_t>(nearest);
  return std::bit_cast<float>((std::abs(back) > std::abs(x) ? code - 1 : code) | 1U);
}

}  // namespace

Scalar stored_as(BlockFormat f) {
  return f == BlockFormat::nvfp4 ? Scalar::f32 : Scalar::bf16;
}

std::uint64_t row_length(const std::vector<std::int64_t>& shape) {
  return shape.empty() ? 1 : std::max(std::uint64_t{1}, static_cast<std::uint64_t>(shape.back()));
}

std::uint64_t block_piece(std::uint64_t row, std::uint64_t first, std::uint64_t most) {
  return row <= most ? most / row * row : std::min(most, row - first % row);
}

void round_in_blocks(BlockFormat f, float* values, std::size_t n, std::uint64_t row, std::uint64_t first,
                     float tensor_scale, SimdTarget target) {
  std::size_t part = static_cast<std::size_t>(row - first % row);
  for (std::size_t at = 0; at < n; at += part, part = static_cast<std::size_t>(row))
    round_blocks(f, values + at, std::min(part, n - at), tensor_scale, target);
  if (f != BlockFormat::nvfp4) return;
  for (std::size_t i = 0; i < n; ++i) values[i] *= tensor_scale;
}

void to_blocks(const float* values, std::size_t n, float* out) {
  std::copy_n(values, n, out);
}

void to_blocks(const double* values, std::size_t n, float* out) {
  std::transform(values, values + n, out, round_to_odd);
}

}  // namespace mantissa::convert
