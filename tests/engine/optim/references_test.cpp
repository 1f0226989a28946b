// Schedule-free AdamW, AdEMAMix, Adan and averages of weights against their rules in f64, written here as
// their authors' code has them (tools/check_optimizers.py compares with that code).
#include <gtest/gtest.h>

#include <cmath>

#include "engine/optim/update_case.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/engine/optim/common_settings.h"

namespace mantissa::optim::references_test {
namespace {

using mantissa::testing::UpdateCase;
using precision::Policy;
using Values = std::vector<double>;

constexpr int kSteps = 40, kWarmup = 7;
constexpr std::int64_t kCount = 60;
constexpr double kRate = 0.01, kDecay = 0.1, kEps = 1e-8;

std::vector<Parameter> parameters() {
  return {{.name = "w.weight", .shape = {12, 5}, .hidden_matrix = true, .weight_decay = kDecay}};
}
Values start() {
  Values w;
  for (std::int64_t i = 0; i < kCount; ++i) w.push_back(static_cast<double>((i * 613) % 257 - 128) / 256);
  return w;
}
double gradient(std::int64_t i, int t) {
  return (static_cast<double>((i * 7919 + t * 104729) % 2003) - 1000.5) / 4096;
}
double rate(int t) {
  return t <= kWarmup ? kRate * t / kWarmup : kRate;
}

/// One element under the rules of the authors' code.
struct ScheduleFree {
  double y, z, v = 0, sum = 0;
  explicit ScheduleFree(double w) : y(w), z(w) {}
  void step(double g, int t) {
    constexpr double b1 = 0.9, b2 = 0.999;
    const double lr = rate(t), weight = lr * lr;  // the rate never falls, so it is its own maximum
    sum += weight;
    const double c = weight / sum;
    v = b2 * v + (1 - b2) * g * g;
    const double u = g / (std::sqrt(v / (1 - std::pow(b2, t))) + kEps) + kDecay * y;
    y += c * (z - y) + u * lr * (b1 * (1 - c) - 1);
    z -= lr * u;
  }
  double weight() const { return y; }
  double average() const { return y + (1 - 1 / 0.9) * (z - y); }  // as eval() of the package
};

struct AdEmaMix {
  double w, m1 = 0, m2 = 0, v = 0;
  explicit AdEmaMix(double x) : w(x) {}
  void step(double g, int t) {
    constexpr double b1 = 0.9, b2 = 0.999, b3 = 0.9999, alpha = 5, steps = 25;
    const double a = std::min(1.0, t / steps);
    const double half = (1 - a) * (std::log(0.5) / std::log(b1) - 1) + a * (std::log(0.5) / std::log(b3) - 1);
    const double slow = a < 1 ? std::pow(0.5, 1 / (half + 1)) : b3;
    m1 = b1 * m1 + (1 - b1) * g;
    m2 = slow * m2 + (1 - slow) * g;
    v = b2 * v + (1 - b2) * g * g;
    const double size = std::sqrt(v) / std::sqrt(1 - std::pow(b2, t)) + kEps;
    w -= rate(t) * ((m1 / (1 - std::pow(b1, t)) + alpha * a * m2) / size + kDecay * w);
  }
  double weight() const { return w; }
};

struct Adan {
  double w, m = 0, v = 0, n = 0, before = 0;
  explicit Adan(double x) : w(x) {}
  void step(double g, int t) {
    constexpr double b1 = 0.98, b2 = 0.92, b3 = 0.99;
    const double d = t == 1 ? 0 : g - before, lr = rate(t);
    m = b1 * m + (1 - b1) * g;
    v = b2 * v + (1 - b2) * d;
    n = b3 * n + (1 - b3) * (g + b2 * d) * (g + b2 * d);
    const double size = std::sqrt(n) / std::sqrt(1 - std::pow(b3, t)) + kEps;
    w -= lr / (1 - std::pow(b1, t)) * m / size;
    w -= lr * b2 / (1 - std::pow(b2, t)) * v / size;
    w /= 1 + lr * kDecay;
    before = g;
  }
  double weight() const { return w; }
};

/// In units of u, the unit roundoff: a step rounds the weight at most `kRoundings` times, and the moments and
/// the step, which is at most `largest` rates, about twenty times.
constexpr double kRoundings = 6;

template <class Reference>
void expect_reference(const std::string& optimizer, const Settings& settings, double largest) {
  for (const auto& [policy, u] : {std::pair("64-true", 0x1p-53), {"32-true", 0x1p-24}}) {
    UpdateCase run(optimizer, settings, parameters(), Policy::parse(policy));
    std::vector<Reference> want;
    for (const double w : start()) want.emplace_back(w);
    run.set_weight(0, start());
    for (int t = 1; t <= kSteps; ++t) {
      Values g;
      for (std::int64_t i = 0; i < kCount; ++i) {
        g.push_back(gradient(i, t));
        want[static_cast<std::size_t>(i)].step(g.back(), t);
      }
      run.set_gradient(0, g);
      ASSERT_TRUE(run.step({.lr = rate(t), .t = t, .step = t}).applied);
      const Values got = run.weight(0), average = run.state("average.w.weight");
      for (std::size_t i = 0; i < want.size(); ++i) {
        const double tolerance = t * u * (kRoundings * 0.5 + 20 * largest * kRate);
        ASSERT_NEAR(got[i], want[i].weight(), tolerance) << policy << " element " << i << " step " << t;
        if constexpr (requires { want[i].average(); }) {
          // The reference divides the difference of two weights by β1.
          ASSERT_NEAR(average[i], want[i].average(), 1.3 * tolerance) << policy << " element " << i;
        }
      }
    }
  }
}

TEST(References, ScheduleFreeAdamWIsThatOfItsAuthors) {
  expect_reference<ScheduleFree>("schedule-free-adamw",
                                 with_facts({{"weight_decay", kDecay}}, {.warmup_steps = kWarmup}), 4);
}

TEST(References, AdEmaMixIsThatOfItsAuthors) {
  expect_reference<AdEmaMix>("ademamix", with_facts({}, {.steps = 25}), 10);
  expect_reference<AdEmaMix>("ademamix", with_facts({{"mix_warmup", std::int64_t{25}}}, {.steps = 99}), 10);
}

TEST(References, AdanIsThatOfItsAuthors) {
  expect_reference<Adan>("adan", {}, 6);
}

/// Every update of every rule moves the average by (1 − decay) of its distance from the stored weight.
TEST(Average, FollowsTheStoredWeightsOfEveryOptimizer) {
  constexpr double kEma = 0.9;
  for (const Optimizer* o : all_optimizers()) {
    if (o == &find_optimizer("schedule-free-adamw")) continue;  // it has one of its own
    for (const auto& [policy, u] : {std::pair("64-true", 0x1p-53),
                                    {"32-true", 0x1p-24},
                                    {"bf16-true optimizer=bf16 rounding=stochastic", 0x1p-24},
                                    {"bf16-true optimizer=dynamic8-256 kahan=true", 0x1p-24}}) {
      UpdateCase run(o->name, {{"ema_decay", kEma}}, parameters(), Policy::parse(policy));
      UpdateCase without(o->name, {}, parameters(), Policy::parse(policy));
      run.set_weight(0, start());
      without.set_weight(0, start());
      Values want = run.weight(0);
      EXPECT_EQ(run.state("average.w.weight"), want) << o->name << " starts at the weight";
      for (int t = 1; t <= 9; ++t) {
        Values g;
        for (std::int64_t i = 0; i < kCount; ++i) g.push_back(gradient(i, t));
        for (UpdateCase* c : {&run, &without}) {
          c->set_gradient(0, g);
          ASSERT_TRUE(c->step({.lr = kRate, .t = t, .step = t, .seed = 3}).applied);
        }
        const Values w = run.weight(0), average = run.state("average.w.weight");
        EXPECT_EQ(w, without.weight(0)) << o->name << " trains the same weights";
        for (std::size_t i = 0; i < w.size(); ++i) {
          want[i] += (1 - kEma) * (w[i] - want[i]);
          ASSERT_NEAR(average[i], want[i], 3 * t * u) << o->name << ' ' << policy << ' ' << i;
        }
      }
      // A skipped step leaves it.
      const std::vector<std::byte> before = run.bytes();
      run.set_gradient(0, Values(kCount, std::nan("")));
      EXPECT_FALSE(run.step({.lr = kRate, .t = 10, .step = 10}).applied);
      EXPECT_TRUE(run.bytes() == before);
    }
  }
}

TEST(Average, HasTheFormatOfTheArithmetic) {
  for (const auto& [policy, format] : {std::pair("64-true", Scalar::f64),
                                       {"32-true optimizer=dynamic8-256", Scalar::f32},
                                       {"bf16-true optimizer=bf16 rounding=stochastic", Scalar::f32},
                                       {"16-true", Scalar::f32}}) {
    for (const char* optimizer : {"adamw", "schedule-free-adamw"}) {
      const bool own = std::string_view(optimizer) != "adamw";
      UpdateCase run(optimizer, {{"ema_decay", own ? 0.0 : 0.99}}, parameters(), Policy::parse(policy));
      int states = 0;
      for (const plan::Buffer& b : run.program().buffers) {
        if (!b.name.starts_with("average.") && !b.name.starts_with("base.")) continue;
        EXPECT_EQ(b.type, format) << b.name << ' ' << policy;
        EXPECT_EQ(b.codes, StateCodes::none);
        ++states;
      }
      EXPECT_EQ(states, own ? 2 : 1);
    }
  }
}

TEST(ScheduleFree, NeedsAConstantRateAndNoOtherAverage) {
  const Optimizer& o = find_optimizer("schedule-free-adamw");
  EXPECT_NO_THROW(o.check(with_facts(defaults(o), {.constant_rate = true})));
  EXPECT_THROW(o.check(with_facts(defaults(o), {.constant_rate = false})), ConfigError);
  Settings averaged = defaults(o);
  averaged["ema_decay"] = 0.9;
  EXPECT_THROW(o.check(averaged), ConfigError);
}

}  // namespace
}  // namespace mantissa::optim::references_test
