// L2Wrap in the head: the share of each token's largest logit in its gradient.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/head_case.h"
#include "kernels/reference/head.h"
#include "mantissa/core/numeric/row_math.h"

namespace mantissa::kernels::head_l2wrap_test {
namespace {

using namespace kernels::testing;  // NOLINT(google-build-using-namespace)

constexpr double kCap = 3.7, kWrap = 1e-4, kLarge = 0.75;

struct HeadFormats {
  Scalar arithmetic, storage, rounded, softmax;
  double soft_cap = 0;
};
constexpr HeadFormats kHeadFormats[] = {
    {Scalar::f64, Scalar::f64, Scalar::f64, Scalar::f64},
    {Scalar::f64, Scalar::f64, Scalar::f64, Scalar::f64, kCap},
    {Scalar::f32, Scalar::f32, Scalar::f32, Scalar::f64},
    {Scalar::f32, Scalar::bf16, Scalar::f32, Scalar::f64, kCap},
    {Scalar::f32, Scalar::bf16, Scalar::bf16, Scalar::bf16},
};

Head wrapped_head(const HeadFormats& f, std::int64_t vocabulary, const Batch& batch, double l2wrap) {
  Head h(f.arithmetic, f.storage, vocabulary, batch);
  h.rounded = f.rounded;
  h.softmax = f.softmax;
  h.soft_cap = f.soft_cap;
  h.l2wrap = l2wrap;
  return h;
}

double largest(const std::vector<double>& v) {
  double m = 0;
  for (const double e : v) m = std::max(m, std::abs(e));
  return m;
}

/// The part without L2Wrap errs as in head_test.cpp, by `chain` u of each p. The other part is −d · w · l at
/// one entry: l errs by the error of a logit, and two products round.
TEST(HeadL2Wrap, GradientAgreesWithItsReferenceAcrossChunks) {
  for (const HeadFormats& f : kHeadFormats) {
    if (f.softmax != Scalar::f64) continue;
    for (const std::int64_t vocabulary : {std::int64_t{1}, std::int64_t{37}, kVocabularyChunk + 5}) {
      SCOPED_TRACE(::testing::Message()
                   << name(f.storage) << " vocabulary " << vocabulary << " cap " << f.soft_cap);
      const Head h = wrapped_head(f, vocabulary, Batch({7, 4, 2}, 2), kLarge);
      const std::vector<Tensor> got = h.run({.simd = best_simd()});
      const auto n = static_cast<std::size_t>(h.batch.tokens);
      const std::vector<double> x = h.x.values(), w = h.weight.values(), d = h.d.values();
      const reference::Head head{h.batch.tokens, kChannels,    vocabulary, x.data(),
                                 w.data(),       h.ids.data(), f.soft_cap, kLarge};
      std::vector<double> log_prob(n), lse(n), dx(x.size()), dweight(w.size());
      reference::log_prob(head, log_prob.data(), lse.data(), nullptr);
      reference::log_prob_backward(head, lse.data(), {d.data()}, dx.data(), dweight.data());
      const double product = static_cast<double>(kChannels) * largest(x) * largest(w);
      const double logit = f.soft_cap == 0 ? product : f.soft_cap;
      const double logit_error = 2 * kChannels * product + (f.soft_cap == 0 ? 0 : 4 * f.soft_cap);
      const double slope = f.soft_cap == 0 ? 0 : 2 * (logit_error / f.soft_cap + 4) + 2;
      const double chain =
          logit_error + static_cast<double>(std::min(vocabulary, kVocabularyChunk)) / 16 + 64 + 264 + slope;
      const double per_logit = 2 * largest(d) + largest(d) * kLarge * (logit + 1);
      const double u = unit_roundoff(f.arithmetic) + unit_roundoff(Scalar::f64);
      for (std::size_t i = 0; i < dx.size(); ++i)
        ASSERT_NEAR(got[3].values()[i], dx[i], chain * u * per_logit * largest(w)) << "dx " << i;
      const std::vector<double> got_weight = got[4].values();
      for (std::size_t i = 0; i < dweight.size(); ++i)
        ASSERT_NEAR(got_weight[i], dweight[i], chain * u * per_logit * largest(x) * static_cast<double>(n));
    }
  }
}

/// With one token x = e0, a weight's first element is the logit before the cap, and that weight's gradient is
/// the logit's.
TEST(HeadL2Wrap, GradientHasTheBitsOfTheStatedOperations) {
  constexpr std::int64_t kVocabulary = kVocabularyChunk + 77;
  for (const double soft_cap : {0.0, kCap}) {
    for (const bool is_id : {false, true}) {
      Head h(Scalar::f32, Scalar::f32, kVocabulary, Batch({1}));
      h.soft_cap = soft_cap;
      for (std::int64_t c = 0; c < kChannels; ++c) h.x.set(0, c, c == 0 ? 1 : 0);
      constexpr std::int64_t kTop = kVocabularyChunk + 3;
      h.weight.set(kTop, 0, 5.25);
      h.weight.set(kTop + 9, 0, 5.25);  // of equal ones the first
      h.ids[0] = is_id ? static_cast<std::int32_t>(kTop) : 4;
      const std::vector<Tensor> without = h.run({.simd = best_simd()});
      h.l2wrap = kWrap;
      const std::vector<Tensor> got = h.run({.simd = best_simd()});
      EXPECT_EQ(got[5].get(0, 0), kTop);
      float l = 5.25F, slope = 1;
      if (soft_cap != 0) {
        const float cap = static_cast<float>(soft_cap);
        l /= cap;
        map_row(MathFunction::tanh, &l, 1, &l);
        l *= cap;
        slope = std::fma(-(l / cap), l / cap, 1.0F);
      }
      const float added = -static_cast<float>(h.d.get(0, 0)) * static_cast<float>(kWrap) * l * slope;
      for (std::int64_t v = 0; v < kVocabulary; ++v) {
        const float before = static_cast<float>(without[4].get(v, 0));
        ASSERT_EQ(got[4].get(v, 0), static_cast<double>(v == kTop ? before + added : before)) << v;
      }
      EXPECT_NE(got[4].get(kTop, 0), without[4].get(kTop, 0));
      for (const std::size_t same : {0U, 1U, 2U})
        EXPECT_TRUE(got[same] == without[same]) << "a loss without it";
    }
  }
}

TEST(HeadL2Wrap, OnePassGivesTheBytesOfTwoOnEveryInstructionSetAndThreadCount) {
  for (const HeadFormats& f : kHeadFormats) {
    SCOPED_TRACE(::testing::Message() << name(f.storage) << " cap " << f.soft_cap);
    const Head h = wrapped_head(f, 1061, Batch({300, 260, 3}, 1), kLarge);
    const std::vector<Tensor> halves = h.run({.simd = best_simd()});
    for (const Context& ctx : contexts()) {
      EXPECT_TRUE(h.run(ctx) == halves) << describe(ctx);
      const std::vector<Tensor> joined = h.run(ctx, nullptr, true);
      for (const std::size_t i : {0U, 1U, 3U, 4U, 5U})
        EXPECT_TRUE(joined[i] == halves[i]) << describe(ctx) << ", joined, " << i;
    }
  }
}

TEST(HeadL2Wrap, ScalesWithTheGradientOfTheLoss) {
  Head h(Scalar::f32, Scalar::f32, 1030, Batch({10}));
  h.l2wrap = kWrap;
  const std::vector<Tensor> one = h.run({.simd = best_simd()});
  for (std::int64_t t = 0; t < 10; ++t) h.d.set(t, 0, 1024 * h.d.get(t, 0));
  const std::vector<Tensor> many = h.run({.simd = best_simd()});
  for (std::int64_t t = 0; t < 10; ++t) {
    for (std::int64_t c = 0; c < kChannels; ++c) EXPECT_EQ(many[3].get(t, c), 1024 * one[3].get(t, c));
  }
}

TEST(HeadL2Wrap, GivesZerosForTokensWithoutAnIdOrAShare) {
  Head h(Scalar::f32, Scalar::f32, 1030, Batch({10}));
  h.l2wrap = kLarge;
  h.d.set(1, 0, 0);
  const std::vector<Tensor> got = h.run({.simd = best_simd()});
  for (const std::int64_t t : {1, 4, 9}) {
    for (std::int64_t c = 0; c < kChannels; ++c) EXPECT_EQ(got[3].get(t, c), 0) << t;
  }
}

TEST(HeadL2Wrap, HasNoTopWithoutALargestNumber) {
  Head h(Scalar::f32, Scalar::f32, 37, Batch({2}));
  h.l2wrap = kLarge;
  for (std::int64_t c = 0; c < kChannels; ++c) h.x.set(1, c, NAN);
  const std::vector<Tensor> got = h.run({.simd = best_simd()});
  EXPECT_GE(got[5].get(0, 0), 0);
  EXPECT_EQ(got[5].get(1, 0), -1);
}

}  // namespace
}  // namespace mantissa::kernels::head_l2wrap_test
