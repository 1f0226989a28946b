// Matrices that round to blocks, for tests.
#pragma once

#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "kernels/row_testing.h"
#include "mantissa/core/numeric/block_codes.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/kernels/scaled.h"

namespace mantissa::kernels::testing {

inline Context best() {
  return {.simd = best_simd()};
}

/// Packs and decodes.
inline Tensor packed(const Context& ctx, const Tensor& from, const Blocks& blocks, float tensor_scale,
                     const BlockRounding& how) {
  const Layout layout{.type = Scalar::bf16, .blocks = blocks};
  std::vector<std::uint8_t> bytes(layout.bytes(from.rows, from.columns));
  pack_blocks(ctx, from.rows, from.columns, from, bytes.data(), blocks, tensor_scale, how);
  Tensor to(Scalar::f32, from.rows, from.columns);
  std::vector<float> row(static_cast<std::size_t>(from.columns));
  const std::uint8_t* scales = bytes.data() + layout.scales_begin(from.rows, from.columns);
  for (std::int64_t r = 0; r < from.rows; ++r) {
    decode_blocks({bytes.data() + layout.element_offset(r, 0, from.columns),
                   scales + layout.scale_offset(r, 0, from.columns), blocks.format, blocks.along_rows},
                  0, row.size(), row.data());
    for (std::int64_t c = 0; c < from.columns; ++c) to.set(r, c, row[static_cast<std::size_t>(c)]);
  }
  return to;
}

inline Tensor rounded(const Context& ctx, const Tensor& from, const Blocks& blocks, float tensor_scale,
                      const BlockRounding& how, std::span<const Row> rows = {}) {
  Tensor to(Scalar::f32, from.rows, from.columns);
  round_to_blocks(ctx, from.rows, from.columns, from, to, blocks.format, tensor_scale, blocks.along_rows,
                  rows, how);
  return to;
}

/// Of values with many magnitudes, in bf16.
inline Tensor matrix(std::int64_t rows, std::int64_t columns, unsigned seed = kSeed) {
  std::mt19937 random(seed);
  Tensor t = Tensor(Scalar::f32, rows, columns).fill_normal(random);
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c)
      t.set(r, c, round_to(t.get(r, c) * std::exp2(static_cast<double>(random() % 9)), Scalar::bf16));
  }
  return t;
}

}  // namespace mantissa::kernels::testing
