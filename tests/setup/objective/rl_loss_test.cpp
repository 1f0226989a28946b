// The loss of reinforcement learning: its gradients against finite differences, clipping, means, importance
// weights, masks.
#include "mantissa/setup/objective/rl_loss.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace mantissa::objective {
namespace {

constexpr double kHidden = std::numeric_limits<double>::quiet_NaN();

/// The tensors of a batch of rows of kLength tokens.
struct Rows {
  static constexpr std::size_t kLength = 5;
  std::vector<float> mask;
  std::vector<double> log_probs, old_log_probs, advantages, ref_log_probs, rollout_log_probs, values,
      old_values, returns, entropies;

  std::size_t rows() const { return mask.size() / kLength; }
  std::vector<std::vector<double>*> all() {
    return {&log_probs, &old_log_probs, &advantages, &ref_log_probs, &rollout_log_probs,
            &values,    &old_values,    &returns,    &entropies};
  }
  RlRow row(std::size_t r) const {
    const auto of = [&](const auto& tensor) { return std::span(tensor).subspan(r * kLength, kLength); };
    return {.mask = of(mask),
            .log_probs = of(log_probs),
            .old_log_probs = of(old_log_probs),
            .advantages = of(advantages),
            .ref_log_probs = of(ref_log_probs),
            .rollout_log_probs = of(rollout_log_probs),
            .values = of(values),
            .old_values = of(old_values),
            .returns = of(returns),
            .entropies = of(entropies)};
  }
  RlStep step() const {
    RlStep step;
    for (std::size_t r = 0; r < rows(); ++r) {
      const std::int64_t tokens = counted_tokens(row(r).mask);
      step.tokens += tokens;
      step.rows += tokens > 0 ? 1 : 0;
    }
    return step;
  }
};

Rows random_rows(std::mt19937& random, std::size_t rows) {
  std::normal_distribution<double> normal;
  Rows out;
  for (std::vector<double>* tensor : out.all()) {
    for (std::size_t i = 0; i < rows * Rows::kLength; ++i) tensor->push_back(normal(random));
  }
  for (std::size_t i = 0; i < rows * Rows::kLength; ++i) {
    out.mask.push_back(random() % 4 != 0 ? 1 : 0);
    out.log_probs[i] = out.old_log_probs[i] + 0.3 * out.log_probs[i];
    out.ref_log_probs[i] = out.old_log_probs[i] + out.ref_log_probs[i];
    out.rollout_log_probs[i] = out.old_log_probs[i] + 0.3 * out.rollout_log_probs[i];
  }
  out.mask[0] = 1;
  return out;
}

struct Sum {
  double loss = 0;
  std::vector<double> log_probs, values, entropies;
  RlStatistics statistics;
};

Sum loss_of(const Rows& rows, const RlSettings& s, double loss_scale = 1) {
  Sum sum;
  for (std::vector<double>* seeds : {&sum.log_probs, &sum.values, &sum.entropies})
    seeds->assign(rows.mask.size(), kHidden);
  RlStep step = rows.step();
  step.loss_scale = loss_scale;
  for (std::size_t r = 0; r < rows.rows(); ++r) {
    const auto of = [&](std::vector<double>& tensor) {
      return std::span(tensor).subspan(r * Rows::kLength, Rows::kLength);
    };
    sum.loss +=
        rl_loss(rows.row(r), s, step, {of(sum.log_probs), of(sum.values), of(sum.entropies)}, sum.statistics)
            .total();
  }
  return sum;
}

RlSettings random_settings(std::mt19937& random) {
  const auto one = [&](std::initializer_list<double> choices) {
    return choices.begin()[random() % choices.size()];
  };
  RlSettings s;
  s.algorithm = random() % 2 == 0 ? Algorithm::ppo : Algorithm::grpo;
  s.clip_low = one({0.1, 0.2});
  s.clip_high = one({0.2, 0.28});
  s.dual_clip = one({0, 1.5});
  s.value_clip = one({0, 0.5});
  s.entropy_coef = one({0, 0.1});
  s.kl = static_cast<Kl>(random() % 4);
  s.kl_coef = one({0, 0.3});
  s.kl_in = random() % 4 == 0 ? KlIn::reward : KlIn::loss;
  s.loss_mean = static_cast<LossMean>(random() % 3);
  s.max_new_tokens = 9;
  s.importance = static_cast<Importance>(random() % 2);
  s.importance_cap = one({0, 0.9, 2});
  return s;
}

TEST(RlLoss, GradientsEqualFiniteDifferences) {
  // Of loss parts with derivatives of up to about 10: h² times a third derivative, and 2^-52 · 10 / 2 h.
  constexpr double kStep = 1e-5, kBound = 1e-8;
  std::mt19937 random(3);
  int compared = 0, zero = 0;
  for (int round = 0; round < 200; ++round) {
    Rows rows = random_rows(random, 3);
    const RlSettings s = random_settings(random);
    const Sum at = loss_of(rows, s);
    const auto compare = [&](std::vector<double>& input, const std::vector<double>& gradient,
                             const char* name) {
      for (std::size_t i = 0; i < input.size(); ++i) {
        const double before = input[i];
        input[i] = before + kStep;
        const double above = loss_of(rows, s).loss;
        input[i] = before - kStep;
        const double below = loss_of(rows, s).loss;
        input[i] = before;
        // At a kink within the step, the differences to both sides are not alike.
        if (std::abs((above - at.loss) - (at.loss - below)) > 1e-7) continue;
        ASSERT_NEAR(gradient[i], (above - below) / (2 * kStep), kBound)
            << "round " << round << ", " << name << i;
        ++compared;
        zero += gradient[i] == 0 ? 1 : 0;
      }
    };
    compare(rows.log_probs, at.log_probs, "log_prob ");
    compare(rows.values, at.values, "value ");
    compare(rows.entropies, at.entropies, "entropy ");
  }
  EXPECT_GT(compared, 8900);  // of 9000: kinks are rare
  EXPECT_GT(compared - zero, 3000);
}

TEST(RlLoss, IgnoresWhatTheMaskHides) {
  std::mt19937 random(4);
  for (int round = 0; round < 100; ++round) {
    const Rows clean = random_rows(random, 4);
    Rows dirty = clean;
    for (std::vector<double>* tensor : dirty.all()) {
      for (std::size_t i = 0; i < tensor->size(); ++i) {
        if (clean.mask[i] == 0)
          (*tensor)[i] = random() % 2 == 0 ? kHidden : std::numeric_limits<double>::infinity();
      }
    }
    const RlSettings s = random_settings(random);
    const Sum a = loss_of(clean, s), b = loss_of(dirty, s);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.log_probs, b.log_probs);
    EXPECT_EQ(a.values, b.values);
    EXPECT_EQ(a.entropies, b.entropies);
    EXPECT_EQ(a.statistics.kl, b.statistics.kl);
    for (std::size_t i = 0; i < clean.mask.size(); ++i) {
      if (clean.mask[i] != 0) continue;
      EXPECT_EQ(a.log_probs[i] + a.values[i] + a.entropies[i], 0);
    }
  }
}

TEST(RlLoss, SeedsAreScaledAndTheLossIsNot) {
  std::mt19937 random(5);
  const Rows rows = random_rows(random, 3);
  const RlSettings s = random_settings(random);
  const Sum plain = loss_of(rows, s), scaled = loss_of(rows, s, 1024);
  EXPECT_EQ(plain.loss, scaled.loss);
  for (std::size_t i = 0; i < plain.log_probs.size(); ++i)
    EXPECT_EQ(1024 * plain.log_probs[i], scaled.log_probs[i]);
}

/// A row of one token without divergence, values or entropy.
struct OneToken {
  double ratio, advantage;
  RlSettings settings = {};
  double loss = 0, gradient = 0;
  RlStatistics statistics;

  OneToken(double ratio_, double advantage_, double dual_clip = 0) : ratio(ratio_), advantage(advantage_) {
    settings.kl = Kl::none;
    settings.clip_high = 0.3;
    settings.dual_clip = dual_clip;
    const float mask = 1;
    const double log_prob = std::log(ratio), old = 0;
    loss = rl_loss({.mask = {&mask, 1},
                    .log_probs = {&log_prob, 1},
                    .old_log_probs = {&old, 1},
                    .advantages = {&advantage, 1}},
                   settings, {1, 1}, {{&gradient, 1}}, statistics)
               .actor;
  }
};

TEST(RlLoss, OfOnPolicySamplesIsMinusTheAdvantage) {
  const OneToken t(1, 2.5);
  EXPECT_EQ(t.loss, -2.5);
  EXPECT_EQ(t.gradient, -2.5);
  EXPECT_EQ(t.statistics.ratio.min, 1);
  EXPECT_EQ(t.statistics.ratio.max, 1);
}

TEST(RlLoss, IsClippedWhereTheRatioHasMovedFarEnough) {
  const OneToken high(1.5, 2), low(0.5, -2);
  EXPECT_NEAR(high.loss, -2.6, 1e-15);
  EXPECT_EQ(high.gradient, 0);
  EXPECT_EQ(high.statistics.clipped_high, 1);
  EXPECT_NEAR(low.loss, 1.6, 1e-15);
  EXPECT_EQ(low.gradient, 0);
  EXPECT_EQ(low.statistics.clipped_low, 1);
}

TEST(RlLoss, IsNotClippedOnTheWayBack) {
  const OneToken below(0.5, 2), above(1.5, -2);
  EXPECT_NEAR(below.loss, -1, 1e-15);
  EXPECT_NEAR(below.gradient, -1, 1e-15);
  EXPECT_NEAR(above.loss, 3, 1e-15);
  EXPECT_NEAR(above.gradient, 3, 1e-15);
  EXPECT_EQ(below.statistics.clipped_low + above.statistics.clipped_high, 0);
}

TEST(RlLoss, DualClipBoundsTokensWithANegativeAdvantage) {
  const OneToken bounded(5, -2, 3), below(2, -2, 3), positive(5, 2, 3);
  EXPECT_EQ(bounded.loss, 6);
  EXPECT_EQ(bounded.gradient, 0);
  EXPECT_EQ(bounded.statistics.clipped_dual, 1);
  EXPECT_NEAR(below.loss, 4, 1e-14);
  EXPECT_EQ(below.statistics.clipped_dual, 0);
  EXPECT_EQ(positive.statistics.clipped_dual, 0);
}

TEST(RlLoss, OfAnAdvantageOfZeroIsZeroForAnyRatio) {
  const OneToken t(std::numeric_limits<double>::infinity(), 0);
  EXPECT_EQ(t.loss, 0);
  EXPECT_EQ(t.gradient, 0);
}

TEST(RlLoss, ValueGradientAtATieIsTheMeanOfBoth) {
  RlSettings s;
  s.algorithm = Algorithm::ppo;
  s.kl = Kl::none;
  const float mask = 1;
  // |1 − 0.75| = |0.5 − 0.75|: plain and clipped are equal.
  const double zero = 0, value = 1, target = 0.75;
  double seed = 0, value_seed = 0;
  RlStatistics statistics;
  const RlLoss loss = rl_loss({.mask = {&mask, 1},
                               .log_probs = {&zero, 1},
                               .old_log_probs = {&zero, 1},
                               .advantages = {&zero, 1},
                               .values = {&value, 1},
                               .old_values = {&zero, 1},
                               .returns = {&target, 1}},
                              s, {1, 1}, {{&seed, 1}, {&value_seed, 1}}, statistics);
  EXPECT_EQ(loss.value, 0.5 * 0.5 * 0.0625);
  EXPECT_EQ(value_seed, 0.5 * 0.5 * 0.25);
  EXPECT_EQ(statistics.values_clipped, 1);
}

TEST(RlLoss, MeansAreOverTokensOrRowsOrAConstant) {
  Rows rows;
  rows.mask = {1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0};  // 4 tokens, 1 token, none
  for (std::vector<double>* tensor : rows.all()) tensor->assign(rows.mask.size(), 0);
  rows.advantages.assign(rows.mask.size(),
                         -1);  // a loss of 1 for each token of the first row, 6 of the second
  rows.advantages[5] = -6;
  RlSettings s;
  s.max_new_tokens = 8;
  EXPECT_DOUBLE_EQ(loss_of(rows, s).loss, 10.0 / 5);
  s.loss_mean = LossMean::sequence;
  EXPECT_DOUBLE_EQ(loss_of(rows, s).loss, (1.0 + 6) / 2);
  s.loss_mean = LossMean::constant;
  EXPECT_DOUBLE_EQ(loss_of(rows, s).loss, 10.0 / (2 * 8));
}

TEST(RlLoss, ImportanceWeightsAreCappedFactorsOfThePolicyTerm) {
  Rows rows;
  rows.mask = {1, 1, 1, 0, 0};
  for (std::vector<double>* tensor : rows.all()) tensor->assign(rows.mask.size(), 0);
  rows.advantages = {-1, -1, -1, kHidden, kHidden};
  rows.rollout_log_probs = {std::log(2), -std::log(1.5), -std::log(4), kHidden,
                            kHidden};  // weights ½, 1.5, 4
  rows.ref_log_probs = {1, 1, 1, kHidden, kHidden};
  RlSettings s;
  s.kl = Kl::k1;
  s.kl_coef = 0.5;
  s.importance_cap = 3;
  const Sum token = loss_of(rows, s);
  EXPECT_NEAR(token.loss, (0.5 + 1.5 + 3) / 3 - 0.5, 1e-15);  // the divergence has no weight
  EXPECT_NEAR(token.log_probs[2], (3 + 0.5) / 3, 1e-15);
  EXPECT_EQ(token.statistics.importance.max, 3);
  EXPECT_NEAR(token.statistics.importance.effective_share(), 25.0 / (3 * 11.5), 1e-15);
  s.importance = Importance::sequence;
  s.importance_cap = 10;
  EXPECT_NEAR(loss_of(rows, s).loss, 0.5 * 1.5 * 4 - 0.5, 1e-14);
  s.importance_cap = 2.5;
  const Sum sequence = loss_of(rows, s);
  EXPECT_NEAR(sequence.loss, 2.5 - 0.5, 1e-14);
  EXPECT_EQ(sequence.statistics.importance.count, 1);
}

TEST(RlLoss, StatisticsOfPartsAddUpToThoseOfTheWhole) {
  std::mt19937 random(6);
  const Rows rows = random_rows(random, 4);
  RlSettings s = random_settings(random);
  s.importance_cap = 2;
  RlStatistics whole, parts[2];
  for (std::size_t r = 0; r < 4; ++r) {
    rl_loss(rows.row(r), s, rows.step(), {}, whole);
    rl_loss(rows.row(r), s, rows.step(), {}, parts[r / 2]);
  }
  parts[0].add(parts[1]);
  EXPECT_EQ(parts[0].tokens, whole.tokens);
  EXPECT_EQ(parts[0].ratio.min, whole.ratio.min);
  EXPECT_EQ(parts[0].ratio.max, whole.ratio.max);
  EXPECT_NEAR(parts[0].ratio.sum, whole.ratio.sum, 1e-13);
  EXPECT_NEAR(parts[0].importance.squares, whole.importance.squares, 1e-13);
  EXPECT_NEAR(parts[0].old_kl, whole.old_kl, 1e-13);
  EXPECT_EQ(parts[0].clipped_high, whole.clipped_high);
  EXPECT_EQ(whole.tokens, rows.step().tokens);
}

}  // namespace
}  // namespace mantissa::objective
