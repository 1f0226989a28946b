// Soft-capped logits in the head: the bits of the stated operations and of separately capped logits, and the
// reference's gradients.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/head_case.h"
#include "kernels/reference/head.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/core/numeric/row_math.h"
#include "mantissa/kernels/expression.h"

namespace mantissa::kernels::head_soft_cap_test {
namespace {

using namespace kernels::testing;  // NOLINT(google-build-using-namespace)

constexpr double kCap = 3.7;  // the logits' standard deviation is √8

struct HeadFormats {
  Scalar arithmetic, storage, rounded, softmax;
};
constexpr HeadFormats kHeadFormats[] = {
    {Scalar::f64, Scalar::f64, Scalar::f64, Scalar::f64},
    {Scalar::f32, Scalar::f32, Scalar::f32, Scalar::f64},
    {Scalar::f32, Scalar::bf16, Scalar::f32, Scalar::f64},
    {Scalar::f32, Scalar::f16, Scalar::f16, Scalar::f64},
    {Scalar::f32, Scalar::bf16, Scalar::bf16, Scalar::bf16},
};

Head capped_head(const HeadFormats& f, std::int64_t vocabulary, const Batch& batch) {
  Head h(f.arithmetic, f.storage, vocabulary, batch);
  h.rounded = f.rounded;
  h.softmax = f.softmax;
  h.soft_cap = kCap;
  return h;
}

/// Computes the head's logits by a product and a pointwise program.
Tensor capped_logits(Context ctx, const Head& h) {
  std::vector<std::byte> work(gemm_workspace(ctx, h.batch.tokens, h.vocabulary, kChannels, h.arithmetic) +
                              64);
  void* begin = work.data();
  std::size_t space = work.size();
  ctx.workspace = static_cast<std::byte*>(std::align(64, work.size() - 63, begin, space));
  ctx.workspace_bytes = work.size() - 64;
  Tensor logits(h.arithmetic, h.batch.tokens, h.vocabulary);
  Gemm g;
  g.m = h.batch.tokens;
  g.n = h.vocabulary;
  g.k = kChannels;
  g.a = {h.x, h.x.type, false};
  g.b = {h.weight, h.weight.type, true};
  g.c = logits;
  g.rounded = h.rounded;
  gemm(ctx, g);
  ExpressionBuilder b;
  const auto cap = b.constant(h.soft_cap);
  b.store(b.mul(cap, b.tanh(b.div(b.load(0), cap))), 0);
  const PointwiseInput in{logits.bytes.data(), logits.type};
  const PointwiseOutput out{logits.bytes.data(), logits.type};
  pointwise(ctx, b.build(), logits.rows, logits.columns, {&in, 1}, {&out, 1});
  return logits;
}

TEST(HeadSoftCap, GivesTheBitsOfSeparatelyCappedLogits) {
  for (const HeadFormats& f : kHeadFormats) {
    for (const Context& ctx : contexts()) {
      SCOPED_TRACE(::testing::Message() << name(f.storage) << ", logits " << name(f.rounded) << ", softmax "
                                        << name(f.softmax) << ", " << describe(ctx));
      const Head h = capped_head(f, 1061, Batch({9, 4}));
      const std::vector<Tensor> got = h.run(ctx);
      const Tensor logits = capped_logits(ctx, h);
      Tensor lse(f.arithmetic, h.batch.tokens, 1), log_prob = lse;
      log_sum_exp(ctx, h.batch.tokens, h.vocabulary, logits, lse, f.softmax);
      EXPECT_TRUE(got[1] == lse);
      for (std::int64_t t = 0; t < h.batch.tokens; ++t) {
        const std::int32_t id = h.ids[static_cast<std::size_t>(t)];
        const double l = id < 0 ? lse.get(t, 0) : round_to(logits.get(t, id), f.softmax);
        log_prob.set(t, 0, round_to(l - lse.get(t, 0), f.softmax));
      }
      EXPECT_TRUE(got[0] == log_prob);
    }
  }
}

/// With one token x = e0, a weight's first element is the logit before the cap, and that weight's gradient is
/// the logit's.
TEST(HeadSoftCap, GradientHasTheBitsOfTheStatedOperations) {
  constexpr std::int64_t kVocabulary = 77;
  Head h(Scalar::f32, Scalar::f32, kVocabulary, Batch({1}));
  h.soft_cap = kCap;
  for (std::int64_t c = 0; c < kChannels; ++c) h.x.set(0, c, c == 0 ? 1 : 0);
  const std::vector<Tensor> got = h.run({.simd = best_simd()});
  const float cap = static_cast<float>(kCap), d = static_cast<float>(h.d.get(0, 0));
  const float lse = static_cast<float>(got[1].get(0, 0));
  for (std::int64_t v = 0; v < kVocabulary; ++v) {
    float l = static_cast<float>(h.weight.get(v, 0)) / cap;
    map_row(MathFunction::tanh, &l, 1, &l);
    l *= cap;
    float p = l - lse;
    map_row(MathFunction::exp, &p, 1, &p);
    const float r = l / cap;
    const float upstream = v == h.ids[0] ? d * (1 - p) : -d * p;
    EXPECT_EQ(got[4].get(v, 0), static_cast<double>(upstream * std::fma(-r, r, 1.0F))) << v;
  }
}

/// A capped logit has the error of its product, which the slope only reduces, plus that of the three
/// operations: at most 4 u of the cap. The slope 1 − r² errs by twice the error of r, at most that of the
/// logit over the cap and 4 u, plus 2 u. The rest is as without a cap (head_test.cpp).
TEST(HeadSoftCap, AgreesWithItsReference) {
  for (const HeadFormats& f : kHeadFormats) {
    if (f.softmax != Scalar::f64 || (f.rounded != f.arithmetic)) continue;
    for (const std::int64_t vocabulary : {std::int64_t{37}, 2 * kVocabularyChunk + 5}) {
      SCOPED_TRACE(::testing::Message() << name(f.storage) << " vocabulary " << vocabulary);
      const Head h = capped_head(f, vocabulary, Batch({7, 4, 2}, 2));
      const std::vector<Tensor> got = h.run({.simd = best_simd()});
      const auto n = static_cast<std::size_t>(h.batch.tokens);
      const std::vector<double> x = h.x.values(), w = h.weight.values(), d = h.d.values();
      const reference::Head head{h.batch.tokens, kChannels,    vocabulary, x.data(),
                                 w.data(),       h.ids.data(), kCap};
      std::vector<std::vector<double>> want{std::vector<double>(n), std::vector<double>(n),
                                            std::vector<double>(n), std::vector<double>(x.size()),
                                            std::vector<double>(w.size())};
      reference::log_prob(head, want[0].data(), want[1].data(), want[2].data());
      reference::log_prob_backward(head, want[1].data(), {d.data()}, want[3].data(), want[4].data());
      const auto largest = [](const std::vector<double>& v) {
        double m = 0;
        for (const double e : v) m = std::max(m, std::abs(e));
        return m;
      };
      const double logit = static_cast<double>(kChannels) * largest(x) * largest(w);
      const double l_error = 2 * kChannels * logit + 4 * kCap;
      const double chain = l_error + static_cast<double>(std::min(vocabulary, kVocabularyChunk)) / 16 + 64;
      const double slope = 2 * (l_error / kCap + 4) + 2;
      const double scale[] = {kCap + 8, kCap + 8, 2 * kCap + 8, 2 * largest(d) * largest(w),
                              largest(d) * largest(x) * static_cast<double>(n)};
      const double u = unit_roundoff(f.arithmetic) + unit_roundoff(Scalar::f64);
      for (std::size_t o = 0; o < want.size(); ++o) {
        const std::vector<double> values = got[o].values();
        for (std::size_t e = 0; e < values.size(); ++e)
          ASSERT_NEAR(values[e], want[o][e], (chain + (o >= 3 ? 264 + slope : 0)) * u * scale[o])
              << "output " << o << " element " << e;
      }
    }
  }
}

TEST(HeadSoftCap, OnePassGivesTheBytesOfTwoOnEveryInstructionSetAndThreadCount) {
  for (const HeadFormats& f : kHeadFormats) {
    const Head h = capped_head(f, 1061, Batch({300, 260, 3}, 1));
    const std::vector<Tensor> halves = h.run({.simd = best_simd()});
    Head plain = h;
    plain.soft_cap = 0;
    const std::vector<Tensor> uncapped = plain.run({.simd = best_simd()});
    for (const std::size_t o : {0U, 1U, 3U, 4U}) EXPECT_FALSE(halves[o] == uncapped[o]) << "output " << o;
    for (const Context& ctx : contexts()) {
      EXPECT_TRUE(h.run(ctx) == halves) << describe(ctx);
      const std::vector<Tensor> joined = h.run(ctx, nullptr, true);
      for (const std::size_t o : {0U, 1U, 3U, 4U})
        EXPECT_TRUE(joined[o] == halves[o]) << describe(ctx) << " output " << o;
    }
  }
}

TEST(HeadSoftCap, BoundsLogitsOfAnySize) {
  Head h(Scalar::f32, Scalar::f32, 2, Batch({2}));
  h.soft_cap = 30;
  for (std::int64_t c = 0; c < kChannels; ++c) {
    h.x.set(0, c, 1e20);
    h.weight.set(0, c, 1e15);
    h.weight.set(1, c, -1e15);
  }
  h.ids = {0, 1};
  const std::vector<Tensor> got = h.run({.simd = best_simd()});
  EXPECT_EQ(got[1].get(0, 0), 30);  // log(e^30 + e^−30)
  EXPECT_EQ(got[0].get(0, 0), 0);
  for (std::int64_t c = 0; c < kChannels; ++c) EXPECT_EQ(got[3].get(0, c), 0);
}

}  // namespace
}  // namespace mantissa::kernels::head_soft_cap_test
