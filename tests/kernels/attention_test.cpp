// Attention and its gradient: equal to the double reference within derived bounds, rounded where the header
// says, blind to what is masked; and the gradients are derivatives.
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
#include "mantissa/kernels/reference/attention.h"
#include "mantissa/numeric/round.h"

namespace mantissa::kernels::attention_test {
namespace {

// ---- Against the reference ----

struct AgainstReference : testing::TestWithParam<std::tuple<Formats, Sizes>> {};

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
    all_of(Scalar::tf32),
    all_of(Scalar::bf16),
    all_of(Scalar::f16),
    all_of(Scalar::e5m2),
    all_of(Scalar::e4m3),
    {Scalar::bf16, Scalar::f32, Scalar::f16, Scalar::f32, Scalar::f32, Scalar::bf16},
    {Scalar::f32, Scalar::bf16, Scalar::e4m3, Scalar::bf16, Scalar::f16, Scalar::f32},
};

const Sizes kSizes[] = {
    {1, 1, 8, {1}},        {4, 2, 64, {1, 5}},    {8, 1, 10, {5, 1, 17}},
    {2, 2, 34, {63, 130}}, {4, 1, 64, {130}},     {2, 1, 256, {65, 3}},
    {2, 2, 80, {511}},     {2, 1, 16, {513, 31}}, {1, 1, 24, {1100}},
};

INSTANTIATE_TEST_SUITE_P(Attention, AgainstReference,
                         testing::Combine(testing::ValuesIn(kFormats), testing::ValuesIn(kSizes)), name_of);

// ---- With a softmax of a lower format ----

struct LoweredSoftmax : testing::TestWithParam<Scalar> {};

/// Scores are quarters of whole numbers and exact, so that the reference rounds the same numbers, with this
/// seed none of them near enough to a tie to fall to its other side; what is left are the errors of f32.
TEST_P(LoweredSoftmax, RoundsWhatTheHeaderSays) {
  const Sizes sizes{4, 2, 16, {5, 16}};
  Case c(sizes, all_of(Scalar::f32));
  c.softmax = GetParam();
  std::mt19937 random(kSeed);
  for (Tensor* t : {&c.q, &c.k}) {
    for (std::size_t i = 0; i < t->count(); ++i) t->set(i, static_cast<double>(random() % 3) - 1);
  }
  for (Tensor* t : {&c.v, &c.dout}) t->fill_normal(random);
  c.forward();
  c.backward();
  const Bounds values(c);
  const Extent extent = extent_of(c.segments);
  const auto round = [s = c.softmax](double x) { return round_to(x, s); };
  std::vector<double> out(c.out.count()), lse(c.lse.count());
  reference::attention(extent, sizes.shape(), values.q.data(), values.k.data(), values.v.data(), out.data(),
                       lse.data(), {}, {}, round);
  std::vector<double> dq(c.dq.count()), dk(c.dk.count()), dv(c.dv.count());
  reference::attention_backward(extent, sizes.shape(), values.q.data(), values.k.data(), values.v.data(),
                                values.out.data(), values.lse.data(), values.dout.data(), dq.data(),
                                dk.data(), dv.data(), {}, round);
  const double u = unit_roundoff(Scalar::f32);
  // Rows of at most 16 keys and 16 queries of 2 heads, values below 4, their products of 16 below 64.
  const double forward_bound = 4 * 64 * u, backward_bound = 2 * 16 * 64 * u;
  const auto near = [](const char* what, const Tensor& t, const std::vector<double>& want, double bound) {
    expect_within(what, t, want, std::vector<double>(want.size(), bound));
  };
  near("out", c.out, out, forward_bound);
  near("lse", c.lse, lse, forward_bound);
  near("dq", c.dq, dq, backward_bound);
  near("dk", c.dk, dk, backward_bound);
  near("dv", c.dv, dv, backward_bound);
  // And it is not the softmax in f32.
  const std::vector<double> lowered = c.out.values();
  c.softmax = Scalar::f64;
  c.forward();
  EXPECT_NE(c.out.values(), lowered);
}

INSTANTIATE_TEST_SUITE_P(Attention, LoweredSoftmax,
                         testing::Values(Scalar::bf16, Scalar::f16, Scalar::e5m2, Scalar::e4m3),
                         [](const auto& info) { return std::string(name(info.param)); });

TEST(LoweredSoftmaxBits, DependNeitherOnThreadsNorOnTheInstructionSetNorOnTheTile) {
  for (const Sizes& sizes : {Sizes{4, 2, 16, {5, 16}}, Sizes{2, 1, 24, {530, 20}}}) {
    Case first = Case::random(sizes, all_of(Scalar::bf16)), second = Case::random(sizes, first.formats);
    first.softmax = second.softmax = Scalar::bf16;
    first.forward({Simd::avx2, 1});
    first.backward({Simd::avx2, 1});
    second.forward({best_simd(), 2});
    second.backward({best_simd(), 2});
    for (const auto member : {&Case::out, &Case::lse, &Case::dq, &Case::dk, &Case::dv})
      EXPECT_TRUE(same_bits(first.*member, second.*member));
  }
}

// ---- What is masked is not read ----

TEST(AttentionMask, NotANumberInALaterTokenReachesNoEarlierOne) {
  for (const double poison :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    for (const std::int64_t at : {1, 37, 100, 515}) {
      SCOPED_TRACE("token " + std::to_string(at));
      const Sizes sizes{2, 1, 24, {530, 20}};
      Case clean = Case::random(sizes, all_of(Scalar::f32));
      clean.forward();
      clean.backward();
      Case bad = Case::random(sizes, all_of(Scalar::f32));
      for (const auto member : {&Case::q, &Case::k, &Case::v}) {
        Tensor& t = bad.*member;
        for (std::int64_t i = 0; i < t.columns; ++i)
          t.set(static_cast<std::size_t>(at * t.columns + i), poison);
      }
      bad.forward();
      for (const auto member : {&Case::out, &Case::lse}) {
        const Tensor &a = clean.*member, &b = bad.*member;
        EXPECT_EQ(std::memcmp(a.row(0), b.row(0), static_cast<std::size_t>(at) * a.row_bytes()), 0);
        EXPECT_EQ(std::memcmp(a.row(530), b.row(530), 20 * a.row_bytes()), 0);
        EXPECT_TRUE(std::isnan(b.get(static_cast<std::size_t>(at * b.columns))));
      }
      // Queries before the bad token: their gradient is that of the clean run.
      bad.backward();
      EXPECT_EQ(
          std::memcmp(clean.dq.row(0), bad.dq.row(0), static_cast<std::size_t>(at) * clean.dq.row_bytes()),
          0);
      EXPECT_EQ(std::memcmp(clean.dq.row(530), bad.dq.row(530), 20 * clean.dq.row_bytes()), 0);
    }
  }
}

TEST(AttentionMask, NotANumberInAQueryReachesNoLaterKey) {
  const Sizes sizes{4, 2, 40, {300}};
  const std::int64_t at = 131;
  Case clean = Case::random(sizes, all_of(Scalar::f32)), bad = Case::random(sizes, all_of(Scalar::f32));
  for (Case* c : {&clean, &bad}) c->forward();
  clean.backward();
  for (const auto member : {&Case::q, &Case::dout}) {
    Tensor& t = bad.*member;
    for (std::int64_t i = 0; i < t.columns; ++i) {
      t.set(static_cast<std::size_t>(at * t.columns + i), std::numeric_limits<double>::quiet_NaN());
    }
  }
  bad.backward();
  for (const auto member : {&Case::dk, &Case::dv}) {
    const Tensor &a = clean.*member, &b = bad.*member;
    EXPECT_EQ(
        std::memcmp(a.row(at + 1), b.row(at + 1), static_cast<std::size_t>(300 - at - 1) * a.row_bytes()), 0);
    EXPECT_TRUE(std::isnan(b.get(static_cast<std::size_t>(at * b.columns))));
  }
}

TEST(AttentionMask, WhatLiesBehindTheCachePositionIsNotRead) {
  const Sizes sizes{2, 1, 16, {70}};
  Case full = Case::random(sizes, all_of(Scalar::f32));
  full.forward();
  Tensor k(Scalar::f32, 128, 16), v(Scalar::f32, 128, 16);
  for (Tensor* t : {&k, &v}) {
    for (std::size_t i = 0; i < t->count(); ++i) t->set(i, std::numeric_limits<double>::quiet_NaN());
  }
  k.copy_rows(0, full.k, 0, 70);
  v.copy_rows(0, full.v, 0, 70);
  Tensor q(Scalar::f32, 3, 32), out(Scalar::f32, 3, 32), lse(Scalar::f32, 3, 2);
  q.copy_rows(0, full.q, 67, 3);
  run_forward({}, {{0, 3, 67, 0}},
              {sizes.shape(), q.view(), k.view(), v.view(), out.view(), lse.view(), Scalar::f32, {1, 128}});
  EXPECT_EQ(std::memcmp(out.row(0), full.out.row(67), 3 * out.row_bytes()), 0);
}

// ---- Rounding points ----

/// x > 0, not subnormal, to nearest even: by scaling until the format's last place is one.
double round_to(Scalar s, double x) {
  const int places = traits(s).mantissa_bits - std::ilogb(x);
  return std::ldexp(std::nearbyint(std::ldexp(x, places)), -places);
}

TEST(AttentionRounding, ProbabilitiesAreRoundedAndTheDenominatorIsNot) {
  // q and k are small whole numbers and the scale is a power of two, so that every score is exact; no
  // exponential of one is so near to the middle of two bf16 values that the kernel's error could round it to
  // the other.
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
  // Only f32 errors are left: chains of 512 and the sums around them, the rescaling, the final division.
  Case unrounded = Case::random(sizes, all_of(Scalar::f32));
  unrounded.q.copy_rows(0, c.q, 0, sizes.tokens());
  unrounded.k.copy_rows(0, c.k, 0, sizes.tokens());
  unrounded.v.copy_rows(0, c.v, 0, sizes.tokens());
  std::vector<double> out_bound, lse_bound;
  Bounds(unrounded).forward(exact, lse, out_bound, lse_bound);
  // A rounded p may exceed the plain one that the bound is made of by one part in 2^8.
  for (double& b : out_bound) b *= 1 + 2 * unit_roundoff(Scalar::bf16);
  expect_within("out", c.out, exact, out_bound);
  expect_within("lse", c.lse, lse, lse_bound);
  std::size_t told_apart = 0;
  for (std::size_t i = 0; i < exact.size(); ++i)
    told_apart += std::abs(plain[i] - exact[i]) > 2 * out_bound[i] ? 1 : 0;
  EXPECT_GT(told_apart, exact.size() / 100)
      << "the bound could not tell rounded probabilities from unrounded ones";
}

TEST(AttentionRounding, LargeScoresNeitherOverflowNorLoseTheAnswer) {
  Case c = Case::random({1, 1, 8, {40}}, all_of(Scalar::f32));
  for (std::size_t i = 0; i < c.q.count(); ++i) {
    c.q.set(i, 1e4);
    c.k.set(i, i / 8 == 20 ? 1e4 : -1e4);  // every query after the 20th looks at key 20 alone
  }
  c.forward();
  for (std::int64_t t = 20; t < 40; ++t)
    EXPECT_EQ(std::memcmp(c.out.row(t), c.v.row(20), c.v.row_bytes()), 0) << t;
}

// ---- Gradients ----

/// The derivative of f at 0 by the five-point rule: off by O(h⁴) and by a few unit roundoffs of f divided by
/// h.
template <class F>
double derivative(F f) {
  const double h = 1e-3;
  return (8 * (f(h) - f(-h)) - (f(2 * h) - f(-2 * h))) / (12 * h);
}

/// Compares the gradient of Σ dout∘out along random directions with differences of `forward`, for q, k and v
/// in turn.
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
    // h⁴ = 1e-12 times a fifth derivative of the order of the gradient's own terms, and 1e-16 / h of
    // rounding.
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

// ---- Factors

/// Values of `t`.
std::vector<double> values_of(const Tensor& t) {
  std::vector<double> values(t.count());
  load_row(t.storage.data(), t.type, 0, values.size(), values.data());
  return values;
}

TEST(AttentionFactors, AreRoundedWhereTheirStorageIsWider) {
  for (const Scalar operand : {Scalar::bf16, Scalar::tf32}) {
    const Sizes sizes{4, 2, 34, {140, 7}};
    Formats formats = all_of(Scalar::f32);
    Case rounds = Case::random(sizes, formats);  // of values that the operand's format does not hold
    rounds.factor = operand;
    formats.operand = operand;
    Case rounded = Case::random(sizes, formats);
    rounds.forward();
    rounded.forward();
    EXPECT_TRUE(same_bits(rounds.out, rounded.out)) << name(operand);
    EXPECT_TRUE(same_bits(rounds.lse, rounded.lse)) << name(operand);
  }
}

TEST(AttentionFactors, InMorePartsComeNearerToTheExactProducts) {
  const Sizes sizes{4, 2, 64, {300}};
  Formats of_f32_values = all_of(Scalar::f64);
  of_f32_values.operand = Scalar::f32;
  Case exact = Case::random(sizes, of_f32_values);
  exact.factor = Scalar::f64;
  exact.forward();
  exact.backward();
  std::vector<double> before;
  for (const int parts : {1, 2, 3}) {
    Case c = Case::random(sizes, all_of(Scalar::f32));
    c.factor = Factor(Scalar::bf16, parts);
    c.forward();
    c.backward();
    std::vector<double> errors;
    for (const auto& [result, reference] :
         {std::pair{&c.out, &exact.out}, {&c.dq, &exact.dq}, {&c.dk, &exact.dk}, {&c.dv, &exact.dv}}) {
      const std::vector<double> want = values_of(*reference), have = values_of(*result);
      double error = 0, size = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        error += (have[i] - want[i]) * (have[i] - want[i]);
        size += want[i] * want[i];
      }
      errors.push_back(std::sqrt(error / size));
    }
    for (std::size_t i = 0; i < errors.size(); ++i) {
      SCOPED_TRACE(::testing::Message() << parts << " parts, result " << i);
      // Each part holds 8 bits more: 256 times less is dropped. An eighth of that is left to what is rounded
      // in f32 all the same.
      if (parts == 2) {
        EXPECT_LT(errors[i], before[i] / 32);
      }
      if (parts == 3) {
        EXPECT_LT(errors[i], 16 * unit_roundoff(Scalar::f32));
      }
    }
    before = errors;
  }
}

}  // namespace
}  // namespace mantissa::kernels::attention_test
