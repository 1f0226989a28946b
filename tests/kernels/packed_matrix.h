// A matrix in packed blocks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/gemm_case.h"
#include "mantissa/core/numeric/block_codes.h"
#include "mantissa/kernels/scaled.h"

namespace mantissa::kernels::gemm_test {

/// A matrix in packed blocks, with guard bytes behind it.
struct Packed {
  std::int64_t rows, width;
  Layout layout;
  std::vector<std::byte> bytes;

  Packed(const Tensor& from, const Blocks& blocks, float tensor_scale, const Context& ctx)
      : rows(from.rows), width(from.columns), layout{.type = Scalar::bf16, .blocks = blocks} {
    EXPECT_EQ(from.ld, from.columns);
    constexpr std::size_t kGuard = 64;
    bytes.assign(layout.bytes(rows, width) + kGuard, std::byte{0});
    std::fill(bytes.end() - kGuard, bytes.end(), std::byte{0x5a});
    pack_blocks(ctx, rows, width, from, bytes.data(), blocks, tensor_scale);
    for (std::size_t i = 1; i <= kGuard; ++i) EXPECT_EQ(bytes[bytes.size() - i], std::byte{0x5a});
  }

  const std::byte* scales() const { return bytes.data() + layout.scales_begin(rows, width); }
  GemmOperand operand(bool transposed, float unscale) const {
    return {{bytes.data(), Scalar::bf16, width}, Scalar::bf16, transposed, unscale, layout.blocks, scales()};
  }
  std::vector<float> values() const {
    std::vector<float> all(static_cast<std::size_t>(rows * width));
    const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
    for (std::int64_t i = 0; i < rows; ++i) {
      const CodedRow row{data + layout.element_offset(i, 0, width),
                         data + layout.scales_begin(rows, width) + layout.scale_offset(i, 0, width),
                         layout.blocks->format, layout.blocks->along_rows};
      decode_blocks(row, 0, static_cast<std::size_t>(width), all.data() + i * width, converter());
    }
    return all;
  }

 private:
  static SimdTarget converter() { return testing::converter(); }
};

}  // namespace mantissa::kernels::gemm_test
