// Column copies between matrices: byte for byte within one format, one rounding between two formats, and no
// writes beside them.
#include "mantissa/kernels/columns.h"

#include <gtest/gtest.h>

#include "kernels/row_testing.h"

namespace mantissa::kernels::columns_test {
namespace {

using testing::contexts;
using testing::describe;
using testing::kSeed;
using testing::Tensor;

constexpr std::int64_t kRows = 37, kFrom = 1203, kTo = 1100;

/// Copies columns [7, 7 + width) of a matrix to columns [3, 3 + width) of another.
void expect_copied(const Tensor& from, const Tensor& before, std::int64_t width) {
  Tensor expected = before;
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (std::int64_t j = 0; j < width; ++j) expected.set(i, 3 + j, from.get(i, 7 + j));
  }
  for (const Context& ctx : contexts()) {
    Tensor to = before;
    copy_columns(ctx, kRows, width, columns_from(ConstMatrix(from), 7), columns_from(Matrix(to), 3));
    EXPECT_EQ(to, expected) << name(from.type) << " to " << name(to.type) << ", " << describe(ctx);
  }
}

TEST(Columns, AreConvertedBetweenAllFormatsWithOneRounding) {
  std::mt19937 random(kSeed);
  for (const Scalar from : kScalars) {
    for (const Scalar to : kScalars) {
      const Tensor x = Tensor(from, kRows, kFrom, 2).fill_normal(random);
      const Tensor before = Tensor(to, kRows, kTo, 5).fill_normal(random);
      for (const std::int64_t width : {1, 1030}) expect_copied(x, before, width);
    }
  }
}

TEST(Columns, OfOneFormatKeepEveryByte) {
  // All 16-bit codes, including NaN with every payload.
  Tensor from(Scalar::bf16, 64, 1024);
  for (std::size_t i = 0; i < 65536; ++i) {
    const auto code = static_cast<std::uint16_t>(i);
    std::memcpy(from.bytes.data() + 2 * i, &code, 2);
  }
  for (const Context& ctx : contexts()) {
    Tensor to(Scalar::bf16, 64, 1024);
    copy_columns(ctx, 64, 1024, from, to);
    EXPECT_EQ(to, from) << describe(ctx);
  }
}

TEST(Columns, AreZeroedWithoutWritesBesideThem) {
  std::mt19937 random(kSeed);
  for (const Scalar s : kScalars) {
    const Tensor before = Tensor(s, kRows, kTo, 5).fill_normal(random);
    Tensor expected = before;
    for (std::int64_t i = 0; i < kRows; ++i) {
      for (std::int64_t j = 20; j < 900; ++j) expected.set(i, j, 0);
    }
    for (const Context& ctx : contexts()) {
      Tensor to = before;
      zero_columns(ctx, kRows, 880, columns_from(Matrix(to), 20));
      EXPECT_EQ(to, expected) << name(s) << ", " << describe(ctx);
    }
  }
}

TEST(Columns, OfNoRowsAreNotTouched) {
  Tensor to(Scalar::f32, 2, 3);
  const Tensor before = to;
  copy_columns({.simd = best_simd()}, 0, 3, to, to);
  zero_columns({.simd = best_simd()}, 2, 0, to);
  EXPECT_EQ(to, before);
}

}  // namespace
}  // namespace mantissa::kernels::columns_test
