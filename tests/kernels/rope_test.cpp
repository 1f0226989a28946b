// Rotary position embedding: the tables of transformers, the bits of the stated operations on every
// instruction set and thread count and in every format, and a rotation that the inverse undoes.
#include "mantissa/kernels/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "kernels/reference/rope.h"
#include "kernels/row_testing.h"
#include "mantissa/core/numeric/round.h"

namespace mantissa::kernels::rope_test {
namespace {

using testing::Batch;
using testing::contexts;
using testing::describe;
using testing::is_f64;
using testing::kSeed;
using testing::rounding_error;
using testing::Tensor;

struct GoldenAngle {
  double theta;
  std::int64_t head_dim, position, i;
  float cos, sin;
};

// Written by tools/golden_rows.py: inverse frequencies and angles by torch in f32, their cos and sin in
// double.
constexpr GoldenAngle kGolden[] = {
    {10000.0, 16, 1, 0, 0x1.14a2800000000p-1f, 0x1.aed5480000000p-1f},
    {10000.0, 16, 1, 1, 0x1.e69cd40000000p-1f, 0x1.3e727c0000000p-2f},
    {10000.0, 16, 1, 2, 0x1.fd71300000000p-1f, 0x1.98eaee0000000p-4f},
    {10000.0, 16, 1, 5, 0x1.ffff580000000p-1f, 0x1.9e7c420000000p-9f},
    {10000.0, 16, 1, 7, 0x1.fffffe0000000p-1f, 0x1.4b96c00000000p-12f},
    {10000.0, 16, 7, 0, 0x1.81ff7a0000000p-1f, 0x1.50608c0000000p-1f},
    {10000.0, 16, 7, 1, -0x1.32e9780000000p-1f, 0x1.99d0dc0000000p-1f},
    {10000.0, 16, 7, 2, 0x1.8799660000000p-1f, 0x1.49d6e60000000p-1f},
    {10000.0, 16, 7, 5, 0x1.ffdfe40000000p-1f, 0x1.6aa54c0000000p-6f},
    {10000.0, 16, 7, 7, 0x1.ffffae0000000p-1f, 0x1.2223d80000000p-9f},
    {10000.0, 16, 1000, 0, 0x1.1ff0260000000p-1f, 0x1.a75cc20000000p-1f},
    {10000.0, 16, 1000, 1, -0x1.e8db000000000p-2f, 0x1.c1e34a0000000p-1f},
    {10000.0, 16, 1000, 2, 0x1.b981dc0000000p-1f, -0x1.03425c0000000p-1f},
    {10000.0, 16, 1000, 5, -0x1.ffe3f60000000p-1f, -0x1.52e22e0000000p-6f},
    {10000.0, 16, 1000, 7, 0x1.e69cd40000000p-1f, 0x1.3e727e0000000p-2f},
    {10000.0, 64, 1, 0, 0x1.14a2800000000p-1f, 0x1.aed5480000000p-1f},
    {10000.0, 64, 1, 1, 0x1.76a9600000000p-1f, 0x1.5cf59c0000000p-1f},
    {10000.0, 64, 1, 8, 0x1.fd71300000000p-1f, 0x1.98eaee0000000p-4f},
    {10000.0, 64, 1, 17, 0x1.fffc500000000p-1f, 0x1.eb72320000000p-8f},
    {10000.0, 64, 1, 31, 0x1.0000000000000p+0f, 0x1.17a8e40000000p-13f},
    {10000.0, 64, 2047, 0, 0x1.ff6ab60000000p-3f, -0x1.efc78c0000000p-1f},
    {10000.0, 64, 2047, 1, -0x1.6deede0000000p-2f, 0x1.de31100000000p-1f},
    {10000.0, 64, 2047, 8, -0x1.c22f540000000p-1f, -0x1.e7c2b00000000p-2f},
    {10000.0, 64, 2047, 17, -0x1.df9b0a0000000p-1f, 0x1.6674680000000p-2f},
    {10000.0, 64, 2047, 31, 0x1.ed0aec0000000p-1f, 0x1.1410900000000p-2f},
    {500000.0, 64, 3, 0, -0x1.fae04c0000000p-1f, 0x1.2103860000000p-3f},
    {500000.0, 64, 3, 1, -0x1.a18dc20000000p-2f, 0x1.d37ffe0000000p-1f},
    {500000.0, 64, 3, 8, 0x1.fcbec00000000p-1f, 0x1.cd1f8e0000000p-4f},
    {500000.0, 64, 3, 17, 0x1.ffff7c0000000p-1f, 0x1.7105c00000000p-9f},
    {500000.0, 64, 3, 31, 0x1.0000000000000p+0f, 0x1.2f62880000000p-17f},
    {500000.0, 64, 8191, 0, -0x1.4af3b20000000p-1f, -0x1.86a8d40000000p-1f},
    {500000.0, 64, 8191, 1, 0x1.a5c1a40000000p-1f, 0x1.2249060000000p-1f},
    {500000.0, 64, 8191, 8, 0x1.f9de260000000p-1f, 0x1.3c05340000000p-3f},
    {500000.0, 64, 8191, 17, 0x1.544fd60000000p-3f, 0x1.f8e1c40000000p-1f},
    {500000.0, 64, 8191, 31, 0x1.ffd8100000000p-1f, 0x1.946c380000000p-6f},
    {500000.0, 128, 5, 0, 0x1.2278580000000p-2f, -0x1.eaf8200000000p-1f},
    {500000.0, 128, 5, 1, -0x1.317a460000000p-1f, -0x1.9ae2da0000000p-1f},
    {500000.0, 128, 5, 16, 0x1.f6f9c60000000p-1f, 0x1.7ed2140000000p-3f},
    {500000.0, 128, 5, 33, 0x1.fffdd40000000p-1f, 0x1.797fd00000000p-8f},
    {500000.0, 128, 5, 63, 0x1.0000000000000p+0f, 0x1.9be77e0000000p-17f},
    {500000.0, 128, 32767, 0, 0x1.f6eb380000000p-1f, 0x1.8003700000000p-3f},
    {500000.0, 128, 32767, 1, -0x1.5027f00000000p-6f, 0x1.ffe4680000000p-1f},
    {500000.0, 128, 32767, 16, 0x1.7cad020000000p-1f, 0x1.5663780000000p-1f},
    {500000.0, 128, 32767, 33, 0x1.ff5d0c0000000p-1f, 0x1.985cdc0000000p-5f},
    {500000.0, 128, 32767, 63, 0x1.fe58180000000p-1f, 0x1.4928740000000p-4f},
};

TEST(RopeTable, HasTheValuesOfTransformers) {
  std::optional<GoldenAngle> made;
  Tensor cos(Scalar::f32, 0, 1), sin(Scalar::f32, 0, 1);
  for (const GoldenAngle& g : kGolden) {
    if (!made || made->theta != g.theta || made->head_dim != g.head_dim || made->position != g.position) {
      cos = sin = Tensor(Scalar::f32, g.position + 1, g.head_dim / 2, 1);
      rope_table({.positions = g.position + 1, .rotated = g.head_dim, .theta = g.theta}, cos, sin);
      made = g;
    }
    EXPECT_EQ(cos.get(g.position, g.i), g.cos)
        << g.theta << ' ' << g.head_dim << ' ' << g.position << ' ' << g.i;
    EXPECT_EQ(sin.get(g.position, g.i), g.sin)
        << g.theta << ' ' << g.head_dim << ' ' << g.position << ' ' << g.i;
  }
}

/// The exponent has one rounding (times at most ln θ in the power); the power, its reciprocal and the angle
/// have one each. The angle's relative error times the angle is the table's absolute error. In f64 pow, cos
/// and sin add less than one ulp each.
TEST(RopeTable, EqualsTheFormulaWithinTheRoundingsOfItsFormat) {
  constexpr std::int64_t kPositions = 600, kDim = 20;
  for (const Scalar s : {Scalar::f32, Scalar::f64}) {
    for (const double theta : {10000.0, 500000.0}) {
      Tensor cos(s, kPositions, kDim / 2), sin(s, kPositions, kDim / 2);
      rope_table({.positions = kPositions, .rotated = kDim, .theta = theta}, cos, sin);
      for (std::int64_t p = 0; p < kPositions; ++p) {
        for (std::int64_t i = 0; i < kDim / 2; ++i) {
          const long double angle =
              static_cast<long double>(p) *
              std::pow(static_cast<long double>(theta), -2.0L * static_cast<long double>(i) / kDim);
          const double error = unit_roundoff(s) * ((std::log(theta) + 5) * static_cast<double>(angle) + 2);
          ASSERT_NEAR(cos.get(p, i), static_cast<double>(std::cos(angle)), error)
              << name(s) << ' ' << p << ' ' << i;
          ASSERT_NEAR(sin.get(p, i), static_cast<double>(std::sin(angle)), error)
              << name(s) << ' ' << p << ' ' << i;
        }
      }
    }
  }
}

TEST(RopeTable, InALowerFormatRoundsEveryIntermediate) {
  constexpr std::int64_t kPositions = 600, kDim = 20;
  constexpr double kBase = 10000;
  for (const Scalar s : {Scalar::bf16, Scalar::f16, Scalar::e5m2}) {
    Tensor cos(Scalar::f32, kPositions, kDim / 2), sin(cos);
    rope_table({.positions = kPositions, .rotated = kDim, .theta = kBase, .angles = s}, cos, sin);
    for (std::int64_t p = 0; p < kPositions; ++p) {
      for (std::int64_t i = 0; i < kDim / 2; ++i) {
        // The frequency in f32 is too close to the formula's to round differently.
        const double frequency = round_to(std::pow(kBase, -2.0 * static_cast<double>(i) / kDim), s);
        const double angle = round_to(round_to(static_cast<double>(p), s) * frequency, s);
        EXPECT_EQ(cos.get(p, i), round_to(static_cast<float>(std::cos(angle)), s))
            << name(s) << ' ' << p << ' ' << i;
        EXPECT_EQ(sin.get(p, i), round_to(static_cast<float>(std::sin(angle)), s))
            << name(s) << ' ' << p << ' ' << i;
      }
    }
  }
}

struct Case {
  Scalar x, y;
  std::int64_t heads, head_dim;
  std::int64_t part = 0;  // rotated values of a head; 0: all
  RopePairs pairs = RopePairs::halves;

  bool is_f64() const { return x == Scalar::f64; }
  std::int64_t rotated() const { return part == 0 ? head_dim : part; }
  reference::RopeHeads shape() const { return {heads, head_dim, rotated(), pairs == RopePairs::neighbours}; }
  Rope call(bool inverse, ConstMatrix from, ConstMatrix cos, ConstMatrix sin, Matrix to) const {
    return {heads, head_dim, inverse, from, cos, sin, to, part, pairs};
  }
};

constexpr double kTheta = 10000;

/// Segments at different positions of their sequences, as with a cache.
struct Problem {
  Problem(const Case& f)
      : batch({4, 1, 33, 20}),
        x(f.x, batch.tokens, f.heads * f.head_dim, 2),
        y(f.y, batch.tokens, f.heads * f.head_dim, 1),
        cos(f.is_f64() ? Scalar::f64 : Scalar::f32, 64, f.rotated() / 2),
        sin(cos) {
    batch.segments[1].position = 63;
    batch.segments[3].position = 7;
    std::mt19937 random(kSeed);
    x.fill_normal(random);
    rope_table({.positions = 64, .rotated = f.rotated(), .theta = kTheta}, cos, sin);
  }
  Batch batch;
  Tensor x, y, cos, sin;
};

class RopeCases : public ::testing::TestWithParam<Case> {};

template <class T>
Tensor spelled(const Problem& p, const Case& f, bool inverse) {
  Tensor y = p.y;
  const reference::RopeHeads shape = f.shape();
  for (const Segment& segment : p.batch.segments) {
    for (std::int64_t t = segment.begin; t < segment.begin + segment.length; ++t) {
      const std::int64_t position = segment.position + t - segment.begin;
      for (std::int64_t j = 0; j < f.heads * f.head_dim; ++j) y.set(t, j, p.x.get(t, j));
      for (std::int64_t k = 0; k < f.heads * f.rotated() / 2; ++k) {
        const std::int64_t i = k % (f.rotated() / 2), head = k / (f.rotated() / 2) * f.head_dim;
        const std::int64_t low = head + shape.low(i), high = head + shape.high(i);
        const T c = static_cast<T>(p.cos.get(position, i)),
                s = static_cast<T>(p.sin.get(position, i)) * (inverse ? T{-1} : T{1});
        const T a = static_cast<T>(p.x.get(t, low)), b = static_cast<T>(p.x.get(t, high));
        y.set(t, low, static_cast<double>(std::fma(a, c, -(b * s))));
        y.set(t, high, static_cast<double>(std::fma(b, c, a * s)));
      }
    }
  }
  return y;
}

TEST_P(RopeCases, HasTheBitsOfTheStatedOperationsEverywhere) {
  const Case& f = GetParam();
  for (const bool inverse : {false, true}) {
    Problem p(f);
    const Tensor expected = f.is_f64() ? spelled<double>(p, f, inverse) : spelled<float>(p, f, inverse);
    for (const Context& ctx : contexts()) {
      SCOPED_TRACE(describe(ctx));
      Problem q(f);
      rope(ctx, q.batch.extent(), f.call(inverse, q.x, q.cos, q.sin, q.y));
      EXPECT_EQ(q.y, expected);
    }
  }
}

/// Two products and their sum: 2 roundings of each term. The table's entries differ from the formula's as
/// shown above, at positions below 64.
TEST_P(RopeCases, EqualsTheRotationWithinTheErrorOfItsArithmetic) {
  const Case& f = GetParam();
  Problem p(f);
  rope({.simd = best_simd()}, p.batch.extent(), f.call(false, p.x, p.cos, p.sin, p.y));
  const std::vector<double> x = p.x.values();
  std::vector<double> y(x.size());
  reference::rope(p.batch.extent(), f.shape(), kTheta, false, x.data(), y.data());
  const double u = unit_roundoff(f.is_f64() ? Scalar::f64 : Scalar::f32);
  const double table_error = u * ((std::log(kTheta) + 5) * 64 + 2);
  const reference::RopeHeads shape = f.shape();
  std::vector<std::int64_t> partner(static_cast<std::size_t>(f.head_dim), -1);  // -1: not rotated
  for (std::int64_t i = 0; i < f.rotated() / 2; ++i) {
    partner[static_cast<std::size_t>(shape.low(i))] = shape.high(i);
    partner[static_cast<std::size_t>(shape.high(i))] = shape.low(i);
  }
  for (std::int64_t t = 0; t < p.x.rows; ++t) {
    for (std::int64_t j = 0; j < p.x.columns; ++j) {
      const std::int64_t i = j % f.head_dim, other = partner[static_cast<std::size_t>(i)];
      const double size = other < 0 ? 0 : std::abs(p.x.get(t, j)) + std::abs(p.x.get(t, j - i + other));
      const double error = size * (table_error + 2.02 * u);
      const double exact = y[static_cast<std::size_t>(t * p.x.columns + j)];
      EXPECT_NEAR(p.y.get(t, j), exact, error + rounding_error(f.y, std::abs(exact) + error));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RopeCases,
    ::testing::Values(Case{Scalar::f64, Scalar::f64, 3, 22}, Case{Scalar::f32, Scalar::f32, 4, 64},
                      Case{Scalar::f32, Scalar::f32, 1, 1030}, Case{Scalar::f32, Scalar::f32, 3, 2},
                      Case{Scalar::bf16, Scalar::bf16, 2, 32}, Case{Scalar::bf16, Scalar::bf16, 5, 6},
                      Case{Scalar::f16, Scalar::f16, 2, 50}, Case{Scalar::tf32, Scalar::tf32, 2, 50},
                      Case{Scalar::e5m2, Scalar::e5m2, 2, 50}, Case{Scalar::e4m3, Scalar::e4m3, 2, 50},
                      Case{Scalar::bf16, Scalar::f32, 2, 128}, Case{Scalar::f32, Scalar::f32, 3, 64, 48},
                      Case{Scalar::bf16, Scalar::bf16, 2, 50, 6},
                      Case{Scalar::f32, Scalar::f32, 3, 64, 0, RopePairs::neighbours},
                      Case{Scalar::f32, Scalar::bf16, 2, 40, 22, RopePairs::neighbours},
                      Case{Scalar::bf16, Scalar::bf16, 3, 36, 18, RopePairs::neighbours},
                      Case{Scalar::f64, Scalar::f64, 2, 20, 2, RopePairs::neighbours}),
    [](const auto& info) {
      return std::string(name(info.param.x)) + "_" + std::string(name(info.param.y)) + "_" +
             std::to_string(info.param.heads) + "x" + std::to_string(info.param.head_dim) +
             (info.param.part == 0 ? "" : "_" + std::to_string(info.param.part)) +
             (info.param.pairs == RopePairs::neighbours ? "_neighbours" : "");
    });

TEST(Rope, WorksInPlace) {
  for (const Case& f : {Case{Scalar::bf16, Scalar::bf16, 3, 40},
                        Case{Scalar::f32, Scalar::f32, 3, 40, 22, RopePairs::neighbours}}) {
    Problem p(f);
    const Context ctx{.simd = best_simd(), .threads = 2};
    rope(ctx, p.batch.extent(), f.call(false, p.x, p.cos, p.sin, p.y));
    rope(ctx, p.batch.extent(), f.call(false, p.x, p.cos, p.sin, p.x));
    EXPECT_EQ(p.x.values(), p.y.values());
  }
}

/// The rotation is linear and orthogonal, so its inverse is its gradient. cos² + sin² is 1 within 2 roundings
/// of each entry, and each rotation adds 2 per term.
TEST(Rope, InverseUndoesIt) {
  Problem p({Scalar::f32, Scalar::f32, 2, 32});
  const Context ctx{.simd = best_simd()};
  Tensor back = p.x;
  rope(ctx, p.batch.extent(), {2, 32, false, p.x, p.cos, p.sin, p.y});
  rope(ctx, p.batch.extent(), {2, 32, true, p.y, p.cos, p.sin, back});
  for (std::int64_t t = 0; t < p.x.rows; ++t) {
    for (std::int64_t j = 0; j < p.x.columns; ++j) {
      const std::int64_t partner = j % 32 < 16 ? j + 16 : j - 16;
      const double size = std::abs(p.x.get(t, j)) + std::abs(p.x.get(t, partner));
      EXPECT_NEAR(back.get(t, j), p.x.get(t, j), 2 * size * (2.02 + 2 * 1.01) * unit_roundoff(Scalar::f32));
    }
  }
}

}  // namespace
}  // namespace mantissa::kernels::rope_test
