// Products in the order of a card have the bits of its definition (core/numeric/card_sum.h) on every path,
// instruction set and thread count.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <random>

#include "kernels/gemm_case.h"
#include "mantissa/core/base/error.h"

namespace mantissa::kernels::gemm_card_test {
namespace {

using namespace gemm_test;  // NOLINT(google-build-using-namespace): shared by these tests

/// Every instruction, with f32 accumulators and, if it has them, those in f16; and loops around it.
std::vector<std::pair<Accumulator, Scalar>> sums() {
  std::vector<std::pair<Accumulator, Scalar>> all;
  for (const mantissa::Instruction& i : instructions()) {
    all.push_back({{i.card, Scalar::f32, i.k}, i.factor});
    if (i.f16) all.push_back({{i.card, Scalar::f16, i.k}, i.factor});
    if (find_instruction(i.card, i.factor) != &i) continue;
    for (const std::int64_t k : {32, 128}) {
      if (k > i.k) all.push_back({{i.card, Scalar::f32, k}, i.factor});
    }
  }
  return all;
}

std::string described(const Accumulator& a, Scalar factor) {
  return fmt::format("{} {} {} k={}", name(a.card), name(factor), name(a.format), a.block);
}

/// The bits are equal; a NaN of AMD's cards may have any.
bool same(const Tensor& a, const Tensor& b, Card card) {
  if (a == b) return true;
  const std::vector<double> of_a = a.values(), of_b = b.values();
  return (card == Card::mi250 || card == Card::mi300) &&
         std::ranges::equal(of_a, of_b, [](double x, double y) { return x == y || (x != x && y != y); });
}

void expect_stated_bits(Case& x) {
  const Tensor expected = as_stated(x, Scalar::f32);
  for (const Context& ctx : contexts()) {
    EXPECT_TRUE(same(x.result(ctx), expected, x.g.accumulator.card))
        << describe(ctx) << ", accumulate " << x.g.accumulate << ", seed " << kSeed;
  }
}

void expect_stated_bits(const Size& size, int transposes, const auto& change) {
  for (const auto& [accumulator, factor] : sums()) {
    SCOPED_TRACE(described(accumulator, factor));
    const Scalar stored = factor == Scalar::tf32 ? Scalar::f32 : factor;
    Case x(size, {stored, stored, factor, Scalar::f32}, transposes);
    x.g.accumulator = accumulator;
    change(x);
    expect_stated_bits(x);
  }
}

TEST(GemmCard, HasTheBitsOfTheDefinition) {
  for (const Size& size : {Size{1, 1, 1}, Size{9, 20, 70}}) {
    for (const int transposes : {0, 3})
      expect_stated_bits(size, transposes, [&](Case& x) { x.g.accumulate = transposes == 0; });
  }
  expect_stated_bits({15, 18, 300}, 0, [](const Case&) {});
}

TEST(GemmCard, StartsAnAccumulatorForEachLeaf) {
  const std::vector<std::int64_t> lengths = {40, 7, 1, 90};
  for (const std::int64_t rows_per_leaf : {1, 2}) {
    expect_stated_bits({13, 19, testing::Batch(lengths).tokens}, 1,
                       [&](Case& x) { x.cut(lengths, rows_per_leaf); });
  }
}

TEST(GemmCard, MultipliesTheFinishedSumByScales) {
  expect_stated_bits({7, 20, 90}, 2, [&](Case& x) {
    x.g.a.unscale = 0x1.8p-3F;
    x.g.b.unscale = 0x1.4p2F;
  });
}

/// Numbers whose products, sums or exponents are out of the range of aligned integers.
TEST(GemmCard, HasTheBitsOfTheDefinitionForExtremeNumbers) {
  std::mt19937 random(kSeed);
  const auto spread = [&](Tensor& t, double share) {
    const ScalarTraits& of = traits(t.type);
    std::vector<float> values(static_cast<std::size_t>(t.rows * t.columns));
    for (float& v : values) {
      const double low = of.min_normal_exp - of.mantissa_bits, high = std::log2(of.max_finite);
      const double e = std::uniform_real_distribution(low, high)(random);
      const double pick = std::uniform_real_distribution(0.0, 1.0)(random);
      v = static_cast<float>(pick < 0.3 ? 0 : std::min(std::exp2(e), of.max_finite));
      if (pick > 0.65) v = -v;
      if (pick > 1 - share) v = of.has_infinity ? std::numeric_limits<float>::infinity() : NAN;
    }
    for (std::int64_t i = 0; i < t.rows; ++i)
      store_row(&values[static_cast<std::size_t>(i * t.columns)], static_cast<std::size_t>(t.columns),
                t.bytes.data(), t.type, t.at(i, 0));
  };
  for (const double share : {0.0, 0.01}) {
    for (const Size& size : {Size{12, 40, 35}, Size{5, 16, 3}}) {
      expect_stated_bits(size, 2, [&](Case& x) {
        spread(x.a, share);
        spread(x.b, share);
      });
    }
  }
}

TEST(GemmCard, RefusesFactorsThatTheCardDoesNotMultiply) {
  Case x({3, 3, 3}, kF32);
  x.g.accumulator = {Card::h100, Scalar::f32, 0};
  EXPECT_THROW(x.result(), DtypeError);
  Case parts({3, 3, 3}, kF32);
  parts.g.accumulator = x.g.accumulator;
  parts.g.a.operand = parts.g.b.operand = Factor(Scalar::bf16, 2);
  EXPECT_THROW(parts.result(), DtypeError);
}

}  // namespace
}  // namespace mantissa::kernels::gemm_card_test
