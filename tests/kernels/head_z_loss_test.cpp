// The z-loss in the head: the square of each token's log-sum-exp beside its log-probability.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/head_case.h"
#include "kernels/reference/head.h"

namespace mantissa::kernels::head_z_loss_test {
namespace {

using namespace kernels::testing;  // NOLINT(google-build-using-namespace)

constexpr double kWeight = 0.05;

/// Σ d · (log_prob − z · lse²), which the gradients belong to.
double objective(const Head& h, const std::vector<double>& x, const std::vector<double>& w) {
  const auto n = static_cast<std::size_t>(h.batch.tokens);
  std::vector<double> log_prob(n), lse(n);
  reference::log_prob({h.batch.tokens, kChannels, h.vocabulary, x.data(), w.data(), h.ids.data(), h.soft_cap},
                      log_prob.data(), lse.data(), nullptr);
  double sum = 0;
  for (std::size_t t = 0; t < n; ++t) {
    if (h.ids[t] >= 0)
      sum += h.d.get(static_cast<std::int64_t>(t), 0) * (log_prob[t] - kWeight * lse[t] * lse[t]);
  }
  return sum;
}

/// A central difference of step s errs by s² / 6 times a third derivative, and by the rounding of the two
/// sums over 2 s.
TEST(HeadZLoss, GradientIsTheDerivativeOfTheLoss) {
  for (const double soft_cap : {0.0, 3.7}) {
    for (const std::int64_t vocabulary : {std::int64_t{37}, kVocabularyChunk + 5}) {
      SCOPED_TRACE(::testing::Message() << vocabulary << " cap " << soft_cap);
      Head h(Scalar::f64, Scalar::f64, vocabulary, Batch({3, 2}));
      h.soft_cap = soft_cap;
      h.z_loss = kWeight;
      const std::vector<Tensor> got = h.run({.simd = best_simd()});
      std::vector<double> x = h.x.values(), w = h.weight.values();
      constexpr double kStep = 0x1p-16;
      const auto slope_at = [&](double& element) {
        const double value = element;
        element = value + kStep;
        const double above = objective(h, x, w);
        element = value - kStep;
        const double below = objective(h, x, w);
        element = value;
        return (above - below) / (2 * kStep);
      };
      for (std::size_t i = 0; i < x.size(); i += 7)
        EXPECT_NEAR(got[3].values()[i], slope_at(x[i]), 1e-6) << i;
      for (const std::size_t v : {0U, 4U, 36U}) {
        const std::size_t i = v * static_cast<std::size_t>(kChannels) + 3;
        EXPECT_NEAR(got[4].values()[i], slope_at(w[i]), 1e-6) << "weight " << v;
      }
    }
  }
}

TEST(HeadZLoss, LeavesTheLogProbabilitiesAlone) {
  Head h(Scalar::f32, Scalar::bf16, 1061, Batch({30, 3}));
  const std::vector<Tensor> without = h.run({.simd = best_simd()});
  h.z_loss = kWeight;
  const std::vector<Tensor> with = h.run({.simd = best_simd()});
  for (const std::size_t same : {0U, 1U, 2U}) EXPECT_TRUE(with[same] == without[same]);
  for (const std::size_t other : {3U, 4U}) EXPECT_FALSE(with[other] == without[other]);
}

TEST(HeadZLoss, OnePassGivesTheBytesOfTwoOnEveryInstructionSetAndThreadCount) {
  for (const Scalar storage : {Scalar::f32, Scalar::bf16}) {
    Head h(Scalar::f32, storage, 1061, Batch({300, 260, 3}, 1));
    h.z_loss = kWeight;
    const std::vector<Tensor> halves = h.run({.simd = best_simd()});
    for (const Context& ctx : contexts()) {
      EXPECT_TRUE(h.run(ctx) == halves) << describe(ctx);
      const std::vector<Tensor> joined = h.run(ctx, nullptr, true);
      for (const std::size_t i : {0U, 1U, 3U, 4U}) EXPECT_TRUE(joined[i] == halves[i]) << describe(ctx) << i;
    }
  }
}

}  // namespace
}  // namespace mantissa::kernels::head_z_loss_test
