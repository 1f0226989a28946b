// Products of blocks in the order of a card have the bits of its definition (core/numeric/card_sum.h).
#include <fmt/format.h>

#include <cmath>
#include <random>
#include <utility>

#include "kernels/gemm_case.h"
#include "kernels/packed_matrix.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/card_sum.h"

namespace mantissa::kernels::gemm_card_blocks_test {
namespace {

using namespace gemm_test;  // NOLINT(google-build-using-namespace): shared by these tests

/// A matrix whose blocks lie along the terms of a sum: as rows of terms, or `transposed` as columns of them.
struct Side {
  bool transposed;
  Packed packed;

  Side(const Tensor& from, BlockFormat format, bool columns)
      : transposed(columns), packed(from, {format, columns}, 1, best()) {}

  /// Coded element `term` of the side's row.
  float at(std::int64_t row, std::int64_t term) const {
    const std::int64_t i = transposed ? term : row, j = transposed ? row : term;
    const Layout& layout = packed.layout;
    const auto* data = reinterpret_cast<const std::uint8_t*>(packed.bytes.data());
    const std::uint8_t* elements = data + layout.element_offset(i, 0, packed.width);
    const std::uint8_t* scales =
        data + layout.scales_begin(packed.rows, packed.width) + layout.scale_offset(i, 0, packed.width);
    const BlockTraits& of = traits(layout.blocks->format);
    const std::uint8_t scale = scales[transposed ? j : j / of.block];
    float value = 0;
    if (of.element_bits == 4) {
      constexpr float kFours[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
      const int code = elements[j / 2] >> (j % 2 * 4) & 15;
      value = std::copysign(kFours[code & 7], code > 7 ? -1.0F : 1.0F);
    } else {
      const bool e5m2 = layout.blocks->format == BlockFormat::mxfp8_e5m2;
      load_row(elements, e5m2 ? Scalar::e5m2 : Scalar::e4m3, static_cast<std::size_t>(j), 1, &value);
    }
    return coded_element(value, scale);
  }
  std::vector<float> terms(std::int64_t row, std::int64_t count) const {
    std::vector<float> all;
    for (std::int64_t k = 0; k < count; ++k) all.push_back(at(row, k));
    return all;
  }
};

/// Normal numbers, of which each run of 16 has a magnitude of its own, and some are zero.
Tensor numbers(std::int64_t rows, std::int64_t terms, bool transposed, double spread, std::mt19937& random) {
  Tensor t(Scalar::f32, transposed ? terms : rows, transposed ? rows : terms);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> exponent(-spread, spread);
  for (std::int64_t i = 0; i < rows; ++i) {
    double magnitude = 1;
    for (std::int64_t k = 0; k < terms; ++k) {
      if (k % 16 == 0) magnitude = std::exp2(exponent(random)) * (random() % 8 == 0 ? 0 : 1);
      const auto x = static_cast<float>(normal(random) * magnitude);
      store_row(&x, 1, t.bytes.data(), t.type, transposed ? t.at(k, i) : t.at(i, k));
    }
  }
  return t;
}

using Formats = std::pair<BlockFormat, BlockFormat>;

void expect_stated_bits(const Formats& formats, const Accumulator& accumulator, const Size& size,
                        int transposes, double spread) {
  std::mt19937 random(kSeed);
  const bool ta = a_transposed(transposes), tb = b_transposed(transposes);
  const Side a(numbers(size.m, size.k, ta, spread, random), formats.first, ta),
      b(numbers(size.n, size.k, !tb, spread, random), formats.second, !tb);
  const CardSum sum = find_card_sum(accumulator, formats.first, formats.second).value();
  Tensor want(Scalar::f32, size.m, size.n, 2);
  for (std::int64_t i = 0; i < size.m; ++i) {
    for (std::int64_t j = 0; j < size.n; ++j) {
      const float x = card_dot(sum, a.terms(i, size.k), b.terms(j, size.k)) * 0.5F;
      store_row(&x, 1, want.bytes.data(), want.type, want.at(i, j));
    }
  }
  Gemm g;
  g.m = size.m;
  g.n = size.n;
  g.k = size.k;
  g.accumulator = accumulator;
  g.a = a.packed.operand(ta, 0.5F);
  g.b = b.packed.operand(tb, 1);
  for (const Context& ctx : contexts()) {
    Tensor c(Scalar::f32, size.m, size.n, 2);
    g.c = c;
    run(g, ctx);
    EXPECT_TRUE(c == want) << describe(ctx) << ", " << traits(formats.first).name << " and "
                           << traits(formats.second).name << ", k=" << accumulator.block << ", " << size.m
                           << " × " << size.n << " × " << size.k << ", transposes " << transposes
                           << ", spread " << spread;
  }
}

constexpr Formats kFormats[] = {
    {BlockFormat::mxfp8, BlockFormat::mxfp8},           {BlockFormat::mxfp8_e5m2, BlockFormat::mxfp8},
    {BlockFormat::mxfp6_e2m3, BlockFormat::mxfp6_e3m2}, {BlockFormat::mxfp4, BlockFormat::mxfp8},
    {BlockFormat::mxfp4, BlockFormat::mxfp4},           {BlockFormat::nvfp4, BlockFormat::nvfp4}};

TEST(GemmCardBlocks, HaveTheBitsOfTheDefinition) {
  for (const Formats& formats : kFormats) {
    for (const int transposes : {0, 1, 2, 3}) {
      expect_stated_bits(formats, {Card::b200, Scalar::f32, 0}, {9, 20, 140}, transposes, 4);
      expect_stated_bits(formats, {Card::b200, Scalar::f32, 0}, {1, 17, 330}, transposes, 20);
    }
    expect_stated_bits(formats, {Card::rtx_blackwell, Scalar::f32, 128}, {15, 18, 300}, 0, 4);
  }
}

/// Scales beyond those for which aligned integers do.
TEST(GemmCardBlocks, HaveTheBitsOfTheDefinitionForExtremeScales) {
  for (const Formats& formats : kFormats) {
    if (formats.first == BlockFormat::nvfp4) continue;  // whose scales are e4m3
    expect_stated_bits(formats, {Card::b200, Scalar::f32, 0}, {5, 16, 96}, 2, 120);
  }
}

TEST(GemmCardBlocks, AreRefusedByCardsWithoutThem) {
  std::mt19937 random(kSeed);
  const Side a(numbers(3, 64, false, 1, random), BlockFormat::mxfp8, false);
  Gemm g;
  g.m = g.n = 3;
  g.k = 64;
  g.a = a.packed.operand(false, 1);
  g.b = a.packed.operand(true, 1);
  Tensor c(Scalar::f32, 3, 3);
  g.c = c;
  g.accumulator = {Card::h100, Scalar::f32, 0};
  EXPECT_THROW(run(g, best()), DtypeError);
  const Tensor plain = Tensor(Scalar::bf16, 3, 64).fill_normal(random);
  g.accumulator = {Card::b200, Scalar::f32, 0};
  g.b = {plain, Scalar::bf16, true, 1};
  EXPECT_THROW(run(g, best()), DtypeError);
}

}  // namespace
}  // namespace mantissa::kernels::gemm_card_blocks_test
