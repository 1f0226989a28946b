// The gradient of the entropy in the head: the reference's values, the bits of the stated operations, and
// invariance of its bytes.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/head_case.h"
#include "kernels/reference/head.h"
#include "mantissa/core/numeric/row_math.h"

namespace mantissa::kernels::head_entropy_test {
namespace {

using namespace kernels::testing;  // NOLINT(google-build-using-namespace)

constexpr double kCap = 3.7;  // the logits' standard deviation is √8

struct HeadFormats {
  Scalar arithmetic, storage, rounded, softmax;
  double soft_cap = 0;
};
constexpr HeadFormats kHeadFormats[] = {
    {Scalar::f64, Scalar::f64, Scalar::f64, Scalar::f64},
    {Scalar::f64, Scalar::f64, Scalar::f64, Scalar::f64, kCap},
    {Scalar::f32, Scalar::f32, Scalar::f32, Scalar::f64},
    {Scalar::f32, Scalar::bf16, Scalar::f32, Scalar::f64},
    {Scalar::f32, Scalar::bf16, Scalar::f32, Scalar::f64, kCap},
    {Scalar::f32, Scalar::f16, Scalar::f16, Scalar::f16},
    {Scalar::f32, Scalar::bf16, Scalar::bf16, Scalar::bf16, kCap},
};

std::string label(const HeadFormats& f) {
  return std::string(name(f.storage)) + ", logits " + std::string(name(f.rounded)) + ", softmax " +
         std::string(name(f.softmax)) + (f.soft_cap == 0 ? "" : ", capped");
}

Head entropy_head(const HeadFormats& f, std::int64_t vocabulary, const Batch& batch) {
  Head h(f.arithmetic, f.storage, vocabulary, batch);
  h.rounded = f.rounded;
  h.softmax = f.softmax;
  h.soft_cap = f.soft_cap;
  h.differentiates_entropy = true;
  return h;
}

double largest(const std::vector<double>& v) {
  double m = 0;
  for (const double e : v) m = std::max(m, std::abs(e));
  return m;
}

/// The part of the log-probability errs as without an entropy (head_test.cpp, head_soft_cap_test.cpp): by
/// `chain` u of each p. The other part is e · p · (log p + H). |log p| and H are at most 2 · logit + log
/// vocabulary, so their sum T is at most twice that. p errs by chain · u, relative; log p by as much,
/// absolute; H by chain · u · (2 · logit + 8), as the forward pass is tested.
TEST(HeadEntropy, GradientAgreesWithItsReferenceAcrossChunks) {
  for (const HeadFormats& f : kHeadFormats) {
    if (f.softmax != Scalar::f64 || f.rounded != f.arithmetic) continue;
    for (const std::int64_t vocabulary : {std::int64_t{1}, std::int64_t{37}, kVocabularyChunk + 1}) {
      SCOPED_TRACE(::testing::Message() << label(f) << " vocabulary " << vocabulary);
      const Head h = entropy_head(f, vocabulary, Batch({7, 4, 2}, 2));
      const std::vector<Tensor> got = h.run({.simd = best_simd()});
      const auto n = static_cast<std::size_t>(h.batch.tokens);
      const std::vector<double> x = h.x.values(), w = h.weight.values(), d = h.d.values(), e = h.e.values();
      const reference::Head head{h.batch.tokens, kChannels,    vocabulary, x.data(),
                                 w.data(),       h.ids.data(), f.soft_cap};
      std::vector<double> log_prob(n), lse(n), entropy(n), dx(x.size()), dweight(w.size());
      reference::log_prob(head, log_prob.data(), lse.data(), entropy.data());
      reference::log_prob_backward(head, lse.data(), {d.data(), e.data(), entropy.data()}, dx.data(),
                                   dweight.data());
      const double product = static_cast<double>(kChannels) * largest(x) * largest(w);
      const double logit = f.soft_cap == 0 ? product : f.soft_cap;
      const double logit_error = 2 * kChannels * product + (f.soft_cap == 0 ? 0 : 4 * f.soft_cap);
      const double slope = f.soft_cap == 0 ? 0 : 2 * (logit_error / f.soft_cap + 4) + 2;
      const double chain =
          logit_error + static_cast<double>(std::min(vocabulary, kVocabularyChunk)) / 16 + 64 + 264 + slope;
      const double t = 2 * (2 * logit + std::log(static_cast<double>(vocabulary)));
      const double per_logit = 2 * largest(d) + largest(e) * (t + 1 + 2 * logit + 8);
      const double u = unit_roundoff(f.arithmetic) + unit_roundoff(Scalar::f64);
      for (std::size_t i = 0; i < dx.size(); ++i)
        ASSERT_NEAR(got[3].values()[i], dx[i], chain * u * per_logit * largest(w)) << "dx " << i;
      const std::vector<double> got_weight = got[4].values();
      for (std::size_t i = 0; i < dweight.size(); ++i) {
        ASSERT_NEAR(got_weight[i], dweight[i], chain * u * per_logit * largest(x) * static_cast<double>(n))
            << "dweight " << i;
      }
      if (vocabulary == 1) continue;
      Head without = h;
      without.differentiates_entropy = false;
      EXPECT_FALSE(without.run({.simd = best_simd()})[3] == got[3]);
    }
  }
}

/// With one token x = e0, a weight's first element is the logit before the cap, and that weight's gradient is
/// the logit's.
TEST(HeadEntropy, GradientHasTheBitsOfTheStatedOperations) {
  constexpr std::int64_t kVocabulary = 77;
  for (const double soft_cap : {0.0, kCap}) {
    Head h(Scalar::f32, Scalar::f32, kVocabulary, Batch({1}));
    h.soft_cap = soft_cap;
    h.differentiates_entropy = true;
    for (std::int64_t c = 0; c < kChannels; ++c) h.x.set(0, c, c == 0 ? 1 : 0);
    const std::vector<Tensor> got = h.run({.simd = best_simd()});
    const float cap = static_cast<float>(soft_cap), d = static_cast<float>(h.d.get(0, 0)),
                e = static_cast<float>(h.e.get(0, 0));
    const float lse = static_cast<float>(got[1].get(0, 0)), entropy = static_cast<float>(got[2].get(0, 0));
    for (std::int64_t v = 0; v < kVocabulary; ++v) {
      float l = static_cast<float>(h.weight.get(v, 0)), slope = 1;
      if (soft_cap != 0) {
        l /= cap;
        map_row(MathFunction::tanh, &l, 1, &l);
        l *= cap;
        slope = std::fma(-(l / cap), l / cap, 1.0F);
      }
      const float log_p = l - lse, t = log_p + entropy;
      float p = log_p;
      map_row(MathFunction::exp, &p, 1, &p);
      const float upstream = v == h.ids[0] ? std::fma(-(e * t), p, d * (1 - p)) : std::fma(-e, t, -d) * p;
      EXPECT_EQ(got[4].get(v, 0), static_cast<double>(upstream * slope)) << v << " cap " << soft_cap;
    }
  }
}

TEST(HeadEntropy, OnePassGivesTheBytesOfTwoOnEveryInstructionSetAndThreadCount) {
  for (const HeadFormats& f : kHeadFormats) {
    SCOPED_TRACE(label(f));
    const Head h = entropy_head(f, 1061, Batch({300, 260, 3}, 1));
    const std::vector<Tensor> halves = h.run({.simd = best_simd()});
    for (const Context& ctx : contexts()) {
      EXPECT_TRUE(h.run(ctx) == halves) << describe(ctx);
      EXPECT_TRUE(h.run(ctx, nullptr, true) == halves) << describe(ctx) << ", joined";
    }
  }
}

/// The gradient of an entropy that counts 0 changes no bit, whatever the entropy is.
TEST(HeadEntropy, OfATokenWithoutAShareChangesNoBit) {
  Head h(Scalar::f32, Scalar::bf16, 1030, Batch({10}));
  const std::vector<Tensor> without = h.run({.simd = best_simd()});
  h.differentiates_entropy = true;
  for (std::int64_t t = 0; t < 10; ++t) h.e.set(t, 0, t == 2 ? 0.5 : 0.0);
  const std::vector<Tensor> with = h.run({.simd = best_simd()});
  for (std::int64_t t = 0; t < 10; ++t) {
    bool same = true;
    for (std::int64_t c = 0; c < kChannels; ++c) same = same && with[3].get(t, c) == without[3].get(t, c);
    EXPECT_EQ(same, t != 2) << t;
  }
}

TEST(HeadEntropy, GivesZerosForTokensWithoutAnId) {
  Head h(Scalar::f32, Scalar::f32, 1030, Batch({10}));
  h.differentiates_entropy = true;
  const std::vector<Tensor> got = h.run({.simd = best_simd()});
  for (std::int64_t t = 4; t < 10; t += 5) {
    EXPECT_EQ(h.ids[static_cast<std::size_t>(t)], -1);
    for (std::int64_t c = 0; c < kChannels; ++c) EXPECT_EQ(got[3].get(t, c), 0);
  }
}

}  // namespace
}  // namespace mantissa::kernels::head_entropy_test
