// Attention and its gradient: within derived bounds of the double reference, rounded where the header states,
// independent of masked values; and the gradients are derivatives.
#include "mantissa/kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/attention_bounds.h"
#include "kernels/attention_case.h"
#include "kernels/reference/attention.h"
#include "mantissa/core/numeric/round.h"

namespace mantissa::kernels::attention_test::attention_test {
namespace {

// ---- Against the reference ----

struct AgainstReference : ::testing::TestWithParam<std::tuple<Formats, Sizes>> {};

TEST_P(AgainstReference, ForwardAndBackwardWithinTheDerivedBound) {
  const auto& [formats, sizes] = GetParam();
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  Case c = Case::random(sizes, formats);
  c.forward({best_simd(), 2});
  c.backward({best_simd(), 2});
  const Bounds bounds(c);
  const Extent extent = extent_of(c.segments);

  std::vector<double> out(c.out.count()), lse(c.lse.count()), out_bound, lse_bound;
  reference::attention(extent, sizes.shape(), bounds.q.data(), bounds.k.data(), bounds.v.data(), out.data(),
                       lse.data());
  bounds.forward(out, lse, out_bound, lse_bound);
  expect_within("out", c.out, out, out_bound);
  expect_within("lse", c.lse, lse, lse_bound);

  std::vector<double> dq(c.dq.count()), dk(c.dk.count()), dv(c.dv.count());
  reference::attention_backward(extent, sizes.shape(), bounds.q.data(), bounds.k.data(), bounds.v.data(),
                                bounds.out.data(), bounds.lse.data(), bounds.dout.data(), dq.data(),
                                dk.data(), dv.data());
  std::vector<double> dq_bound = dq, dk_bound = dk, dv_bound = dv;
  bounds.backward(dq_bound, dk_bound, dv_bound);
  expect_within("dq", c.dq, dq, dq_bound);
  expect_within("dk", c.dk, dk, dk_bound);
  expect_within("dv", c.dv, dv, dv_bound);
}

const Formats kFormats[] = {
    all_of(Scalar::f64),
    all_of(Scalar::f32),
#ifndef MANTISSA_SANITIZED
    all_of(Scalar::tf32),
    all_of(Scalar::bf16),
    all_of(Scalar::f16),
    all_of(Scalar::e5m2),
    all_of(Scalar::e4m3),
#endif
    {Scalar::bf16, Scalar::f32, Scalar::f16, Scalar::f32, Scalar::f32, Scalar::bf16},
    {Scalar::f32, Scalar::bf16, Scalar::e4m3, Scalar::bf16, Scalar::f16, Scalar::f32},
};

const Sizes kSizes[] = {
    {1, 1, 8, {1}},
    {4, 2, 64, {1, 5}},
    {8, 1, 10, {5, 1, 17}},
    {2, 2, 34, {63, 130}},
    {4, 1, 64, {130}},
    {2, 1, 256, {65, 3}},
    {2, 2, 80, {511}},
    {2, 1, 16, {513, 31}},
    {1, 1, 24, {1100}},
    // Windows narrower than a tile, narrower than a block, and across blocks; soft caps that affect all
    // scores and few.
    {3, 1, 34, {130, 520}, 1},
    {4, 2, 16, {1, 5, 140}, 3, 2},
    {2, 1, 16, {1060, 31}, 40},
    {1, 1, 24, {1100}, 600, 1},
    {2, 2, 80, {300}, 0, 4},
    {2, 1, 256, {65, 3}, 33, 8},
};

INSTANTIATE_TEST_SUITE_P(Attention, AgainstReference,
                         ::testing::Combine(::testing::ValuesIn(kFormats), ::testing::ValuesIn(kSizes)),
                         name_of);

// ---- Rounding points ----

/// Rounds x > 0, not subnormal, to nearest even, by scaling the format's last place to one.
double round_to(Scalar s, double x) {
  const int places = traits(s).mantissa_bits - std::ilogb(x);
  return std::ldexp(std::nearbyint(std::ldexp(x, places)), -places);
}

TEST(AttentionRounding, RoundsProbabilitiesButNotTheDenominator) {
  // q and k are small integers and the scale is a power of two, so every score is exact. No exponential of a
  // score is so close to a midpoint of two bf16 values that the kernel's error could change its rounding.
  const Sizes sizes{2, 1, 16, {1030}};
  Case c =
      Case::random(sizes, {Scalar::f32, Scalar::f32, Scalar::f32, Scalar::f32, Scalar::f32, Scalar::bf16});
  ASSERT_EQ(c.sizes.shape().scale, 0.25);
  std::mt19937 random(kSeed);
  for (Tensor* t : {&c.q, &c.k}) {
    for (std::size_t i = 0; i < t->count(); ++i) t->set(i, static_cast<double>(random() % 3) - 1);
  }
  for (double s = -16; s <= 0; s += 0.25) {
    const double p = std::exp(s), r = round_to(Scalar::bf16, p), u = unit_roundoff(Scalar::bf16);
    const double middle = std::abs(std::abs(p - r) - u * std::exp2(std::floor(std::log2(p))));
    ASSERT_GT(middle, kExpUlps * unit_roundoff(Scalar::f32) * p) << s;
  }
  c.forward();
  const auto q = c.q.values(), k = c.k.values(), v = c.v.values();
  std::vector<double> exact(c.out.count()), plain(c.out.count()), lse(c.lse.count());
  const Extent extent = extent_of(c.segments);
  reference::attention(extent, sizes.shape(), q.data(), k.data(), v.data(), exact.data(), lse.data(), {},
                       [](double p) { return round_to(Scalar::bf16, p); });
  reference::attention(extent, sizes.shape(), q.data(), k.data(), v.data(), plain.data(), lse.data());
  // Only f32 errors remain: chains of 512 and the sums around them, the rescaling, the final division.
  Case unrounded = Case::random(sizes, all_of(Scalar::f32));
  unrounded.q.copy_rows(0, c.q, 0, sizes.tokens());
  unrounded.k.copy_rows(0, c.k, 0, sizes.tokens());
  unrounded.v.copy_rows(0, c.v, 0, sizes.tokens());
  std::vector<double> out_bound, lse_bound;
  Bounds(unrounded).forward(exact, lse, out_bound, lse_bound);
  // A rounded p may exceed the plain one in the bound by one part in 2^8.
  for (double& b : out_bound) b *= 1 + 2 * unit_roundoff(Scalar::bf16);
  expect_within("out", c.out, exact, out_bound);
  expect_within("lse", c.lse, lse, lse_bound);
  std::size_t distinguished = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    distinguished += std::abs(plain[i] - exact[i]) > 2 * out_bound[i] ? 1 : 0;
  EXPECT_GT(distinguished, exact.size() / 100)
      << "the bound cannot distinguish rounded from unrounded probabilities";
}

TEST(AttentionRounding, LargeScoresGiveTheExactAnswerWithoutOverflow) {
  Case c = Case::random({1, 1, 8, {40}}, all_of(Scalar::f32));
  for (std::size_t i = 0; i < c.q.count(); ++i) {
    c.q.set(i, 1e4);
    c.k.set(i, i / 8 == 20 ? 1e4 : -1e4);  // every query from the 20th on attends to key 20 only
  }
  c.forward();
  for (std::int64_t t = 20; t < 40; ++t)
    EXPECT_EQ(std::memcmp(c.out.row(t), c.v.row(20), c.v.row_bytes()), 0) << t;
}

// ---- Gradients ----

/// The derivative of f at 0 by the five-point rule, with an error of O(h⁴) plus a few unit roundoffs of f
/// divided by h.
template <class F>
double derivative(F f) {
  const double h = 1e-3;
  return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h);
}

/// Compares the gradient of Σ dout∘out along random directions with finite differences of `forward`, for q, k
/// and v.
template <class Forward>
void expect_gradient(Case& c, Forward forward, const std::vector<double>& dq, const std::vector<double>& dk,
                     const std::vector<double>& dv) {
  std::mt19937 random(kSeed + 2);
  std::normal_distribution<double> normal;
  const std::pair<Tensor Case::*, const std::vector<double>*> inputs[] = {
      {&Case::q, &dq}, {&Case::k, &dk}, {&Case::v, &dv}};
  for (const auto& input : inputs) {
    const auto member = input.first;
    const std::vector<double>& gradient = *input.second;
    const std::vector<double> at = (c.*member).values();
    std::vector<double> direction(at.size());
    double expected = 0, magnitude = 0;
    for (std::size_t i = 0; i < at.size(); ++i) {
      direction[i] = normal(random);
      expected += direction[i] * gradient[i];
      magnitude += std::abs(direction[i] * gradient[i]);
    }
    const double measured = derivative([&](double h) {
      std::vector<double> moved = at;
      for (std::size_t i = 0; i < at.size(); ++i) moved[i] += h * direction[i];
      (c.*member).assign(moved);
      return forward();
    });
    (c.*member).assign(at);
    // h⁴ = 1e-12 times a fifth derivative of the order of the gradient's terms, and rounding of 1e-16 / h.
    EXPECT_NEAR(measured, expected, 1e-9 * magnitude);
  }
}

double loss(const Case& c, const std::vector<double>& out) {
  const std::vector<double> weights = c.dout.values();
  return dot(out.data(), weights.data(), static_cast<std::int64_t>(out.size()));
}

TEST(AttentionGradient, OfTheReferenceIsItsDerivative) {
  Case c = Case::random({4, 2, 6, {9, 1, 14}}, all_of(Scalar::f64));
  const Extent extent = extent_of(c.segments);
  std::vector<double> out(c.out.count()), lse(c.lse.count()), dq(c.dq.count()), dk(c.dk.count()),
      dv(c.dv.count());
  const auto forward = [&] {
    reference::attention(extent, c.sizes.shape(), c.q.values().data(), c.k.values().data(),
                         c.v.values().data(), out.data(), lse.data());
    return loss(c, out);
  };
  forward();
  reference::attention_backward(extent, c.sizes.shape(), c.q.values().data(), c.k.values().data(),
                                c.v.values().data(), out.data(), lse.data(), c.dout.values().data(),
                                dq.data(), dk.data(), dv.data());
  expect_gradient(c, forward, dq, dk, dv);
}

TEST(AttentionGradient, OfTheKernelInDoubleIsItsDerivative) {
  for (const Sizes& sizes : {Sizes{4, 2, 6, {9, 1, 14}}, Sizes{2, 1, 16, {140}}}) {
    Case c = Case::random(sizes, all_of(Scalar::f64));
    const auto forward = [&] {
      c.forward();
      return loss(c, c.out.values());
    };
    forward();
    c.backward();
    expect_gradient(c, forward, c.dq.values(), c.dk.values(), c.dv.values());
  }
}

// ---- Memory ----

TEST(AttentionMemory, GrowsAtMostLinearlyWithTheLength) {
  const Context ctx{best_simd(), 2, nullptr, 0};
  const AttentionShape shape{8, 2, 64, 0.125};
  EXPECT_LE(attention_workspace(ctx, shape, 16384, 16384, Scalar::f32),
            8 * attention_workspace(ctx, shape, 2048, 2048, Scalar::f32));
  EXPECT_LE(attention_backward_workspace(ctx, shape, 16384, 16384, Scalar::f32),
            8 * attention_backward_workspace(ctx, shape, 2048, 2048, Scalar::f32));
}

TEST(AttentionMemory, AWindowAddsOnlyTheFirstVisibleRowsOfATile) {
  const Context ctx{best_simd(), 2, nullptr, 0};
  const AttentionShape whole{8, 2, 64, 0.125}, window{8, 2, 64, 0.125, 512, 30};
  EXPECT_EQ(attention_workspace(ctx, window, 4096, 4096, Scalar::f32),
            attention_workspace(ctx, whole, 4096, 4096, Scalar::f32) + 2 * 32 * sizeof(float));
  EXPECT_EQ(attention_backward_workspace(ctx, window, 4096, 4096, Scalar::f32),
            attention_backward_workspace(ctx, whole, 4096, 4096, Scalar::f32));
}

}  // namespace
}  // namespace mantissa::kernels::attention_test::attention_test
