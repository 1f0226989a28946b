// Properties of every optimizer's update: order of checks, clipping, states in lower formats, bits
// independent of threads, groups.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/base/sanitized.h"
#include "engine/optim/update_case.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/engine/graph/weight_states.h"

namespace mantissa::optim::update_test {
namespace {

using mantissa::testing::UpdateCase;
using precision::Policy;

const kernels::Context kContext{.simd = kernels::best_simd(), .threads = 2};

/// A matrix of a hidden layer, another matrix and a vector; enough elements for several tasks of a pass.
std::vector<Parameter> parameters(double weight_decay = 0.1) {
  return {{.name = "layer.weight", .shape = {150, 130}, .hidden_matrix = true, .weight_decay = weight_decay},
          {.name = "embedding.weight", .shape = {41, 33}, .weight_decay = weight_decay},
          {.name = "norm.weight", .shape = {70}}};
}

std::vector<double> wave(std::int64_t n, double scale, double phase) {
  std::vector<double> x;
  for (std::int64_t i = 0; i < n; ++i) x.push_back(scale * std::sin(0.37 * static_cast<double>(i) + phase));
  return x;
}

void begin(UpdateCase& c, const std::vector<Parameter>& all) {
  for (std::size_t p = 0; p < all.size(); ++p)
    c.set_weight(p, wave(all[p].shape.count(), 0.5, static_cast<double>(p)));
}

train::UpdateResult step(UpdateCase& c, const std::vector<Parameter>& all, int t, double lr = 1e-2) {
  for (std::size_t p = 0; p < all.size(); ++p)
    c.set_gradient(p, wave(all[p].shape.count(), 0.1, static_cast<double>(p) + 1.7 * t));
  return c.step({.lr = lr, .t = t, .step = t, .seed = 5});
}

class EveryOptimizer : public ::testing::TestWithParam<std::string> {
 protected:
  /// Adds a momentum if the optimizer has one.
  static Settings settings() {
    return GetParam() == "sgd" ? Settings{{"momentum", 0.9}, {"nesterov", true}} : Settings{};
  }
};

TEST_P(EveryOptimizer, HasTheSameBytesOnEveryInstructionSetAndThreadCount) {
  const std::vector<Parameter> all = parameters();
  for (const char* policy :
       {"64-true", "32-true", "bf16-mixed", "bf16-true optimizer=bf16 rounding=stochastic",
        "bf16-true optimizer=bf16 kahan=true",
        "16-true; {match = \"*\", pass = \"update\", compute = \"bf16\"}"}) {
    std::vector<std::byte> first;
    for (const kernels::Simd simd : {kernels::best_simd(), kernels::Simd::avx2}) {
      for (const int threads : mantissa::testing::thread_counts()) {
        if (simd != kernels::best_simd() && kernels::best_simd() == kernels::Simd::neon) continue;
        UpdateCase c(GetParam(), settings(), all, Policy::parse(policy), {.simd = simd, .threads = threads});
        begin(c, all);
        for (int t = 1; t <= 3; ++t) ASSERT_TRUE(step(c, all, t).applied) << policy;
        if (first.empty()) first = c.bytes();
        ASSERT_TRUE(c.bytes() == first) << policy << ' ' << kernels::name(simd) << ' ' << threads;
      }
    }
  }
}

TEST_P(EveryOptimizer, ChangesNothingIfAGradientIsNotFinite) {
  const std::vector<Parameter> all = parameters();
  UpdateCase c(GetParam(), settings(), all, Policy::parse("bf16-mixed"), kContext);
  begin(c, all);
  ASSERT_TRUE(step(c, all, 1).applied);
  const std::vector<std::byte> before = c.bytes();
  for (const double bad : {std::numeric_limits<double>::infinity(), std::nan("")}) {
    std::vector<double> gradient = wave(all[2].shape.count(), 0.1, 0);
    gradient.back() = bad;
    c.set_gradient(2, gradient);
    const train::UpdateResult result = c.step({.lr = 1e-2, .t = 2});
    EXPECT_FALSE(result.gradients.finite);
    EXPECT_FALSE(result.applied);
    EXPECT_TRUE(c.bytes() == before);
  }
}

TEST_P(EveryOptimizer, ChangesNothingIfAWeightWouldOverflowItsFormat) {
  const std::vector<Parameter> all = parameters(0);
  for (const char* policy : {"16-true", "32-true params=e4m3"}) {
    for (const std::size_t bad : {0U, 1U}) {
      UpdateCase c(GetParam(), settings(), all, Policy::parse(policy), kContext);
      const double most = traits(c.training().slots[bad].master).max_finite;
      begin(c, all);
      for (std::size_t p = 0; p < all.size(); ++p)
        c.set_gradient(p, std::vector<double>(static_cast<std::size_t>(all[p].shape.count()), 0));
      std::vector<double> weights(static_cast<std::size_t>(all[bad].shape.count()), most / 4);
      std::vector<double> gradient(weights.size(), 0);
      weights[700] = -most;
      gradient[700] = 0.25;
      c.set_weight(bad, weights);
      c.set_gradient(bad, gradient);
      const std::vector<std::byte> before = c.bytes();
      // Every rule moves a weight against its gradient, by about lr, or by a share of the weights' size.
      const train::UpdateResult result = c.step({.lr = 30 * most, .t = 1, .step = 1});
      EXPECT_TRUE(result.gradients.finite);
      ASSERT_TRUE(result.broken.has_value()) << policy;
      EXPECT_EQ(c.training().slots[result.broken->slot].name, all[bad].name);
      EXPECT_EQ(result.broken->weight.element, 700);
      EXPECT_LT(result.broken->weight.value, -most);
      EXPECT_TRUE(c.bytes() == before) << policy;
      EXPECT_TRUE(c.step({.lr = 1e-6, .t = 1, .step = 1}).applied);
    }
  }
}

/// Elements with equal weights and gradients, so that means of stochastically stored values estimate those
/// stored in f32: within 6 standard deviations, each at most half a unit in the last place.
TEST_P(EveryOptimizer, RoundsWeightsAndStatesStochasticallyWithoutABias) {
  constexpr std::int64_t kCount = 40000;
  const std::vector<Parameter> all = {{.name = "v.weight", .shape = {kCount}}};
  UpdateCase exact(GetParam(), settings(), all, Policy::parse("32-true")),
      narrow(GetParam(), settings(), all, Policy::parse("bf16-true optimizer=bf16 rounding=stochastic"));
  for (UpdateCase* c : {&exact, &narrow}) {
    c->set_weight(0, std::vector<double>(kCount, 0.703125));
    c->set_gradient(0, std::vector<double>(kCount, 0.015625));
    ASSERT_TRUE(c->step({.lr = 1.234e-3, .t = 1, .step = 1, .seed = 3}).applied);
  }
  const auto expect_mean = [](const std::vector<double>& stored, double value, const std::string& what) {
    double mean = 0;
    for (const double x : stored) mean += x / kCount;
    EXPECT_NEAR(mean, value, 6 * 0.5 * ulp(value, Scalar::bf16) / std::sqrt(double{kCount})) << what;
  };
  expect_mean(narrow.weight(0), exact.weight(0)[0], "weight");
  for (const plan::Buffer& b : narrow.program().buffers) {
    if (b.home != plan::Home::kept || graph::starts_at_weight(b.random)) continue;
    EXPECT_EQ(b.type, Scalar::bf16) << b.name;
    expect_mean(narrow.state(b.name), exact.state(b.name)[0], b.name);
  }
}

/// A weight with what it has lost moves as one in f32. A step loses half a unit of the compensation's last
/// place, 2^-17 of the weight; and a step that is relative to the weight's size is off by the weight's
/// rounding.
TEST_P(EveryOptimizer, KeepsWhatRoundingWeightsLoses) {
  constexpr int kSteps = 60;
  constexpr double kLr = 2e-4;
  const std::vector<Parameter> all = parameters(0);
  UpdateCase exact(GetParam(), settings(), all, Policy::parse("32-true"), kContext),
      kept(GetParam(), settings(), all, Policy::parse("bf16-true grads=f32 kahan=true"), kContext);
  begin(kept, all);
  for (std::size_t p = 0; p < all.size(); ++p) exact.set_weight(p, kept.weight(p));
  for (int t = 1; t <= kSteps; ++t) {
    ASSERT_TRUE(step(exact, all, t, kLr).applied);
    ASSERT_TRUE(step(kept, all, t, kLr).applied);
  }
  for (std::size_t p = 0; p < all.size(); ++p) {
    const std::vector<double> w = exact.weight(p), stored = kept.weight(p);
    std::vector<double> lost = kept.state("compensation." + all[p].name);
    if (const std::vector<double> average = kept.state("average." + all[p].name); !average.empty()) {
      // The weight follows from states in f32, so it loses only its own rounding.
      EXPECT_TRUE(lost.empty());
      for (std::size_t i = 0; i < w.size(); ++i)
        ASSERT_NEAR(stored[i], w[i], 0x1p-8 * std::abs(w[i]) + kSteps * 0x1p-24) << all[p].name << ' ' << i;
      continue;
    }
    ASSERT_EQ(lost.size(), w.size());
    for (std::size_t i = 0; i < w.size(); ++i)
      ASSERT_NEAR(stored[i] + lost[i], w[i], kSteps * (0x1p-17 * (std::abs(w[i]) + kLr) + 0x1p-8 * 2 * kLr))
          << all[p].name << ' ' << i;
  }
}

TEST_P(EveryOptimizer, WritesTheCopiesFromTheStoredWeights) {
  const std::vector<Parameter> all = parameters();
  UpdateCase c(GetParam(), settings(), all, Policy::parse("bf16-mixed"), kContext);
  begin(c, all);
  ASSERT_TRUE(step(c, all, 1).applied);
  for (std::size_t p = 0; p < all.size(); ++p) {
    const std::vector<double> w = c.weight(p), copy = c.copy(p);
    ASSERT_EQ(copy.size(), static_cast<std::size_t>(all[p].shape.count()));
    EXPECT_NE(w, wave(all[p].shape.count(), 0.5, static_cast<double>(p))) << "the step moves weights";
    for (std::size_t i = 0; i < w.size(); ++i) ASSERT_EQ(copy[i], round_to(w[i], Scalar::bf16));
  }
}

/// The learning rate of a group multiplies the step; its decay also applies to vectors.
TEST_P(EveryOptimizer, ScalesTheRateOfAGroup) {
  std::vector<Parameter> all = parameters(0);
  UpdateCase one(GetParam(), settings(), all, Policy::parse("64-true"), kContext);
  for (Parameter& p : all) p.lr_scale = 0.25;
  UpdateCase scaled(GetParam(), settings(), all, Policy::parse("64-true"), kContext);
  begin(one, all);
  begin(scaled, all);
  ASSERT_TRUE(step(one, all, 1, 1e-2).applied);
  ASSERT_TRUE(step(scaled, all, 1, 4e-2).applied);
  EXPECT_TRUE(one.bytes() == scaled.bytes());
  for (Parameter& p : all) p.weight_decay = 0.5;
  UpdateCase decaying(GetParam(), settings(), all, Policy::parse("64-true"), kContext);
  begin(decaying, all);
  ASSERT_TRUE(step(decaying, all, 1, 4e-2).applied);
  EXPECT_NE(decaying.weight(2), scaled.weight(2));
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryOptimizer, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const Optimizer* o : all_optimizers()) names.emplace_back(o->name);
                           return names;
                         }()),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(Update, ClipsTheNormOfAllGradientsTogetherAndUnscalesThem) {
  const std::vector<Parameter> all = parameters(0);
  double square = 0;
  for (std::size_t p = 0; p < all.size(); ++p) {
    for (const double g : wave(all[p].shape.count(), 0.1, static_cast<double>(p) + 1.7)) square += g * g;
  }
  const double norm = std::sqrt(square);
  for (const double most : {0.0, 0.5, 1e6}) {
    UpdateCase c("sgd", {}, all, Policy::parse("64-true"), kContext);
    begin(c, all);
    for (std::size_t p = 0; p < all.size(); ++p)
      c.set_gradient(p, wave(all[p].shape.count(), 0.1 * 256, static_cast<double>(p) + 1.7));
    const train::UpdateResult result = c.step({.lr = 1, .t = 1, .loss_scale = 256, .max_grad_norm = most});
    EXPECT_NEAR(result.gradients.norm, norm, 1e-12 * norm);
    const double clip = most == 0.5 ? 0.5 / (norm + 1e-6) : 1;
    const std::vector<double> w = c.weight(2), g = wave(70, 0.1, 2 + 1.7), before = wave(70, 0.5, 2);
    for (std::size_t i = 0; i < w.size(); ++i) ASSERT_NEAR(w[i], before[i] - clip * g[i], 1e-15);
  }
}

TEST(Update, StreamsOfRandomBitsFollowSeedStepAndName) {
  const auto weights = [](const std::string& name, std::uint64_t seed, std::int64_t attempt) {
    const std::vector<Parameter> one = {{.name = name, .shape = {4000}}};
    UpdateCase c("lion", {}, one, Policy::parse("bf16-true optimizer=bf16 rounding=stochastic"), kContext);
    c.set_weight(0, std::vector<double>(4000, 0.703125));
    c.set_gradient(0, std::vector<double>(4000, 0.015625));
    EXPECT_TRUE(c.step({.lr = 1.234e-3, .t = 1, .step = attempt, .seed = seed}).applied);
    return c.weight(0);
  };
  const std::vector<double> one = weights("a.weight", 1, 1);
  EXPECT_EQ(weights("a.weight", 1, 1), one);
  EXPECT_NE(weights("b.weight", 1, 1), one);
  EXPECT_NE(weights("a.weight", 2, 1), one);
  EXPECT_NE(weights("a.weight", 1, 2), one);
}

/// A second moment of 1 without gradients shrinks by 0.1 % a step: less than half a unit in bf16's last
/// place, 2^-8 below 1. Each stochastic step draws with a standard deviation of at most half a unit.
TEST(Update, MomentsBelowF32FollowTheirFormulaIfRoundedStochastically) {
  constexpr int kSteps = 500;
  constexpr std::int64_t kCount = 4096;
  const std::vector<Parameter> all = {{.name = "v.weight", .shape = {kCount}}};
  UpdateCase c("adamw", {{"betas", std::array{0.9, 0.999}}}, all,
               Policy::parse("bf16-true optimizer=bf16 rounding=stochastic"), kContext);
  for (const train::Update::State& s : c.states()) {
    if (!c.program().buffer(s.buffer).name.starts_with("second")) continue;
    const std::vector<double> ones(kCount, 1);
    kernels::cast(kContext, kCount, ones.data(), Scalar::f64, s.data, Scalar::bf16);
  }
  for (int t = 1; t <= kSteps; ++t) ASSERT_TRUE(c.step({.lr = 0, .t = t, .step = t}).applied);
  double mean = 0;
  for (const double x : c.state("second_moment.v.weight")) mean += x / kCount;
  EXPECT_NEAR(mean, std::pow(0.999, kSteps), 6 * 0x1p-9 * std::sqrt(double{kSteps} / kCount));
}

TEST(Update, LowersTheProductsOfMuonByARuleOfTheUpdateOnly) {
  const std::vector<Parameter> all = parameters();
  const auto factors = [&](const char* policy) {
    UpdateCase c("muon", {}, all, Policy::parse(policy), kContext);
    std::string formats;
    for (const plan::Step& s : c.program().steps) {
      if (s.op->op == "matmul" && formats.find(s.factors) == std::string::npos) formats += s.factors;
    }
    return formats;
  };
  EXPECT_EQ(factors("bf16-mixed"), "f32");
  EXPECT_EQ(factors("64-true"), "f64");
  EXPECT_EQ(factors("bf16-mixed; {match = \"*\", op = \"matmul\", compute = \"f16\"}"), "f32");
  EXPECT_EQ(factors("32-true; {match = \"*\", op = \"matmul\", pass = \"update\", compute = \"bf16\"}"),
            "bf16");
  EXPECT_EQ(factors("32-true; {match = \"*\", op = \"matmul\", pass = \"update\", compute = \"bf16x3\"}"),
            "bf16x3");
  EXPECT_THROW(factors("32-true; {match = \"*\", op = \"matmul\", pass = \"update\", compute = \"mxfp8\"}"),
               ConfigError);
}

TEST(Registry, EveryKeyMeansTheSameNumbersToAllThatTakeIt) {
  for (const Optimizer* a : all_optimizers()) {
    EXPECT_EQ(&find_optimizer(a->name), a);
    for (const Optimizer* b : all_optimizers()) {
      for (const SettingDef& x : a->settings) {
        for (const SettingDef& y : b->settings) {
          if (x.key != y.key) continue;
          EXPECT_TRUE(x.fallback.index() == y.fallback.index() && x.least == y.least && x.most == y.most &&
                      x.above == y.above && x.below == y.below)
              << a->name << ' ' << b->name << ' ' << x.key;
        }
      }
    }
  }
  EXPECT_THROW(find_optimizer("adagrad"), ConfigError);
}

}  // namespace
}  // namespace mantissa::optim::update_test
