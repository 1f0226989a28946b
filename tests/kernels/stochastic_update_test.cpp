// Stochastic rounding in AdamW's update: unbiased, and independent for each tensor, seed, step and name.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "kernels/update_parameter.h"
#include "mantissa/core/numeric/round.h"

namespace mantissa::kernels::stochastic_update_test {
namespace {

using testing::kKey;
using testing::Parameter;
using testing::Tensor;

/// One update of `count` equal elements, all in bf16, and the f32 values that it rounds.
struct Equals {
  static constexpr std::int64_t kCount = 200'000;
  explicit Equals(RoundingKey key = kKey)
      : p({Scalar::bf16, Scalar::bf16, Scalar::bf16, Scalar::bf16, Rounding::stochastic}, kCount) {
    for (Tensor* t : {&p.master, &p.gradient, &p.first, &p.second}) {
      const double x = t->get(0, 0);
      for (std::int64_t i = 1; i < kCount; ++i) t->set(0, i, x);
    }
    Parameter wide({Scalar::f32, Scalar::f32, Scalar::f32, Scalar::f32}, 1);
    wide.master.set(0, 0, p.master.get(0, 0));
    wide.gradient.set(0, 0, p.gradient.get(0, 0));
    wide.first.set(0, 0, p.first.get(0, 0));
    wide.second.set(0, 0, p.second.get(0, 0));
    adamw({.simd = best_simd()}, wide.update());
    exact = {wide.master.get(0, 0), wide.first.get(0, 0), wide.second.get(0, 0)};
    AdamW u = p.update();
    u.copy = nullptr;
    u.key = key;
    adamw({.simd = best_simd()}, u);
  }
  /// Returns which elements of weight, first or second moment were rounded away from zero.
  std::vector<bool> ups(std::size_t which) const {
    const Tensor& t = which == 0 ? p.master : which == 1 ? p.first : p.second;
    const double down = round_to(exact[which], Scalar::bf16, {Rounding::toward_zero});
    std::vector<bool> up;
    for (const double x : t.values()) {
      EXPECT_TRUE(x == down || std::abs(x - down) == ulp(down, Scalar::bf16)) << x;
      up.push_back(x != down);
    }
    return up;
  }
  /// Returns the probability of rounding away from zero.
  double share(std::size_t which) const {
    const double down = round_to(exact[which], Scalar::bf16, {Rounding::toward_zero});
    return std::abs(exact[which] - down) / ulp(down, Scalar::bf16);
  }
  Parameter p;
  std::array<double, 3> exact{};
};

double count_both(const std::vector<bool>& a, const std::vector<bool>& b) {
  double both = 0;
  for (std::size_t i = 0; i < a.size(); ++i) both += a[i] && b[i] ? 1 : 0;
  return both;
}

/// The count is binomial: within 6 standard deviations.
void expect_drawn(double count, double share) {
  const double n = Equals::kCount;
  EXPECT_NEAR(count, n * share, 6 * std::sqrt(n * share * (1 - share)));
}

TEST(StochasticUpdate, IsUnbiasedAndIndependentForEachTensor) {
  const Equals e;
  for (std::size_t a = 0; a < 3; ++a) {
    ASSERT_GT(e.share(a), 0.01) << "the value needs no rounding: choose other inputs";
    for (std::size_t b = a; b < 3; ++b)
      expect_drawn(count_both(e.ups(a), e.ups(b)), a == b ? e.share(a) : e.share(a) * e.share(b));
  }
}

TEST(StochasticUpdate, DependsOnSeedStepAndName) {
  const Equals one;
  EXPECT_TRUE(Equals(kKey).p == one.p);
  for (const RoundingKey key :
       {RoundingKey{4, kKey.step, kKey.name_hash}, RoundingKey{kKey.seed, 71, kKey.name_hash},
        RoundingKey{kKey.seed, kKey.step, hash_name("lm_head.weight")}}) {
    const Equals other(key);
    for (std::size_t w = 0; w < 3; ++w)
      expect_drawn(count_both(one.ups(w), other.ups(w)), one.share(w) * one.share(w));
  }
}

}  // namespace
}  // namespace mantissa::kernels::stochastic_update_test
