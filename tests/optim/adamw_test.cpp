// AdamW over whole parameters: forty steps against the formulas in double, clipping, and what a non-finite
// gradient does.
#include "mantissa/optim/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "mantissa/kernels/reference/update.h"
#include "mantissa/numeric/convert.h"
#include "mantissa/numeric/round.h"

namespace mantissa::optim {
namespace {

constexpr std::size_t kCount = 200;
const kernels::Context kContext{.simd = kernels::best_simd()};

/// One parameter with f32 (or f64) masters and two copies, and its state in double.
template <class T>
struct Weight {
  static constexpr Scalar kType = sizeof(T) == 8 ? Scalar::f64 : Scalar::f32;
  std::vector<T> master, gradient, first, second;
  std::vector<std::uint16_t> bf16, f16;
  std::vector<kernels::reference::AdamWElement> exact;
  bool decays = true;

  Weight(std::mt19937& random, bool decay) : decays(decay) {
    std::normal_distribution<double> normal;
    for (std::size_t i = 0; i < kCount; ++i) {
      master.push_back(static_cast<T>(normal(random)));
      exact.push_back({static_cast<double>(master.back()), 0, 0});
    }
    gradient.resize(kCount);
    first.resize(kCount);
    second.resize(kCount);
    bf16.resize(kCount);
    f16.resize(kCount);
  }
  static Matrix view(std::vector<T>& v) { return {v.data(), kType, 1}; }
  Parameter parameter() {
    Parameter p;
    p.count = kCount;
    p.decays = decays;
    p.master = view(master);
    p.copies = {{bf16.data(), Scalar::bf16, 1}, {f16.data(), Scalar::f16, 1}};
    p.gradient = view(gradient);
    p.first_moment = view(first);
    p.second_moment = view(second);
    return p;
  }
  void draw_gradient(std::mt19937& random, double scale) {
    std::normal_distribution<double> normal(0, scale);
    for (T& g : gradient) g = static_cast<T>(normal(random));
  }
};

template <class T>
double norm_of(const std::vector<Weight<T>*>& weights) {
  double sum = 0;
  for (const Weight<T>* w : weights) {
    for (const T g : w->gradient) sum += static_cast<double>(g) * static_cast<double>(g);
  }
  return std::sqrt(sum);
}

/// Forty updates with clipping in most of them and a loss scale of 8. An update rounds w twice, m and v twice
/// each, and the step, of size at most about lr·√(1/(1 − β2)), a dozen times: all times u, forty times over.
template <class T>
void check_forty_steps() {
  std::mt19937 random(12);
  Weight<T> matrix(random, true), gain(random, false);
  AdamWOptions o;
  const double lr = 1e-2, scale = 8, u = unit_roundoff(Weight<T>::kType);
  for (std::int64_t t = 1; t <= 40; ++t) {
    matrix.draw_gradient(random, 0.5);
    gain.draw_gradient(random, t % 4 == 0 ? 1e-3 : 0.5);
    if (t % 4 == 0) matrix.draw_gradient(random, 1e-3);
    const double norm = norm_of<T>({&matrix, &gain}) / scale;
    const Parameter parameters[] = {matrix.parameter(), gain.parameter()};
    const StepResult result = adamw_step(kContext, parameters, o, lr, t, scale);
    ASSERT_TRUE(result.finite);
    ASSERT_NEAR(result.gradient_norm, norm, 1e-13 * norm);
    kernels::AdamW h;
    h.lr = lr;
    h.beta1 = o.beta1;
    h.beta2 = o.beta2;
    h.eps = o.eps;
    h.t = t;
    h.gradient_factor = std::min(1.0, o.max_grad_norm / (norm + 1e-6)) / scale;
    for (Weight<T>* w : {&matrix, &gain}) {
      h.weight_decay = w->decays ? o.weight_decay : 0;
      for (std::size_t i = 0; i < kCount; ++i)
        w->exact[i] = kernels::reference::adamw(h, w->exact[i], static_cast<double>(w->gradient[i]));
    }
  }
  for (const Weight<T>* w : {&matrix, &gain}) {
    for (std::size_t i = 0; i < kCount; ++i) {
      const double step = lr / std::sqrt(1 - o.beta2);
      ASSERT_NEAR(static_cast<double>(w->master[i]), w->exact[i].w,
                  40 * u * (2 * (std::abs(w->exact[i].w) + 40 * lr) + 60 * step));
      double bf16 = 0, f16 = 0, want_bf16 = static_cast<double>(w->master[i]), want_f16 = want_bf16;
      load_row(w->bf16.data(), Scalar::bf16, i, 1, &bf16);
      load_row(w->f16.data(), Scalar::f16, i, 1, &f16);
      round_row(&want_bf16, 1, Scalar::bf16);
      round_row(&want_f16, 1, Scalar::f16);
      ASSERT_EQ(bf16, want_bf16);
      ASSERT_EQ(f16, want_f16);
    }
  }
}

TEST(AdamW, FollowsItsFormulasForFortySteps) {
  check_forty_steps<float>();
  check_forty_steps<double>();
}

TEST(AdamW, DecaysOnlyWhatDecays) {
  std::mt19937 random(4);
  Weight<float> matrix(random, true), gain(random, false);
  const std::vector<float> before = gain.master, matrix_before = matrix.master;
  const Parameter parameters[] = {matrix.parameter(), gain.parameter()};
  adamw_step(kContext, parameters, {}, 0.5, 1);  // gradients are zero
  EXPECT_EQ(gain.master, before);
  for (std::size_t i = 0; i < kCount; ++i) ASSERT_EQ(matrix.master[i], matrix_before[i] * 0.95F);
}

TEST(AdamW, ClipsTheNormOfAllParametersTogether) {
  // A first step is sign-like whatever the size, but its moments show what was let through.
  std::mt19937 random(5);
  for (const double most : {0.0, 1.0, 1e6}) {
    Weight<float> a(random, true), b(random, true);
    a.draw_gradient(random, 3);
    b.draw_gradient(random, 3);
    const double norm = norm_of<float>({&a, &b});
    AdamWOptions o;
    o.max_grad_norm = most;
    const Parameter parameters[] = {a.parameter(), b.parameter()};
    EXPECT_NEAR(adamw_step(kContext, parameters, o, 1e-3, 1).gradient_norm, norm, 1e-13 * norm);
    const double clip = most == 1.0 ? 1 / (norm + 1e-6) : 1;
    for (std::size_t i = 0; i < kCount; ++i) {
      const double want = 0.1 * clip * static_cast<double>(b.gradient[i]);
      ASSERT_NEAR(static_cast<double>(b.first[i]), want, 4 * unit_roundoff(Scalar::f32) * std::abs(want));
    }
  }
}

TEST(AdamW, LeavesEverythingAsItWasWhereAGradientIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN()}) {
    std::mt19937 random(6);
    Weight<float> a(random, true), b(random, true);
    a.draw_gradient(random, 1);
    b.draw_gradient(random, 1);
    const Parameter parameters[] = {a.parameter(), b.parameter()};
    ASSERT_TRUE(adamw_step(kContext, parameters, {}, 1e-3, 1).finite);
    const Weight<float> a_before = a, b_before = b;
    b.gradient[kCount - 1] = bad;
    EXPECT_FALSE(adamw_step(kContext, parameters, {}, 1e-3, 2).finite);
    EXPECT_TRUE(a.master == a_before.master && a.first == a_before.first && a.second == a_before.second &&
                a.bf16 == a_before.bf16 && a.f16 == a_before.f16);
    EXPECT_TRUE(b.master == b_before.master && b.first == b_before.first && b.second == b_before.second);
  }
}

TEST(AdamW, LeavesEverythingAsItWasWhereAWeightWouldNotFitItsFormat) {
  std::mt19937 random(7);
  Weight<float> a(random, true), b(random, true);
  std::vector<std::uint8_t> codes(kCount, static_cast<std::uint8_t>(encode(0.5, Scalar::e4m3)));
  codes[150] = static_cast<std::uint8_t>(encode(-448, Scalar::e4m3));
  a.draw_gradient(random, 1);
  b.draw_gradient(random, 1);
  b.gradient[150] = -1;
  Parameter narrow = b.parameter();
  narrow.master = {codes.data(), Scalar::e4m3, 1};
  const Parameter parameters[] = {a.parameter(), narrow};
  const Weight<float> a_before = a, b_before = b;
  const std::vector<std::uint8_t> codes_before = codes;
  const StepResult result = adamw_step(kContext, parameters, {}, 20, 1);
  EXPECT_TRUE(result.finite);
  ASSERT_TRUE(result.overflow.has_value());
  EXPECT_EQ(result.parameter, 1U);
  EXPECT_EQ(result.overflow->element, 150);
  // The first step of Adam is ±lr; decay takes lr·0.1 of the weight.
  EXPECT_NEAR(result.overflow->value, -448 * (1 - 20 * 0.1) + 20, 1e-3);
  EXPECT_EQ(codes, codes_before);
  EXPECT_TRUE(a.master == a_before.master && a.first == a_before.first && a.second == a_before.second);
  EXPECT_TRUE(b.first == b_before.first && b.second == b_before.second);
  EXPECT_FALSE(adamw_step(kContext, parameters, {}, 1, 1).overflow.has_value());
  EXPECT_NE(codes, codes_before);
}

/// `count` equal weights in bf16 with moments in bf16, and `steps` updates with the gradient that `at` gives.
struct Narrow {
  Narrow(std::size_t count, double weight, double second_moment)
      : master(count, code(weight)),
        gradient(count),
        first(count),
        second(count, code(second_moment)),
        compensation(count) {
    parameter.count = static_cast<std::int64_t>(count);
    parameter.decays = false;
    parameter.master = view(master);
    parameter.gradient = view(gradient);
    parameter.first_moment = view(first);
    parameter.second_moment = view(second);
  }
  static std::uint16_t code(double x) { return static_cast<std::uint16_t>(encode(x, Scalar::bf16)); }
  static Matrix view(std::vector<std::uint16_t>& v) { return {v.data(), Scalar::bf16, 1}; }
  void run(int steps, const AdamWOptions& o, double lr, double g) {
    std::fill(gradient.begin(), gradient.end(), code(g));
    for (int t = 1; t <= steps; ++t) adamw_step(kContext, std::span(&parameter, 1), o, lr, t, 1, t);
  }
  static double mean(const std::vector<std::uint16_t>& v) {
    double sum = 0;
    for (const std::uint16_t x : v) sum += decode(x, Scalar::bf16);
    return sum / static_cast<double>(v.size());
  }
  std::vector<std::uint16_t> master, gradient, first, second, compensation;
  Parameter parameter;
};

/// A second moment of 1 without gradients shrinks by 0.1 % a step: less than half a unit in bf16's last
/// place, 2^-8 below 1. Rounding to nearest leaves it where it is. Each stochastic step draws with a standard
/// deviation of at most half a unit; the bound is 6 standard deviations of the mean.
TEST(NarrowMoments, FollowTheirFormulasOnlyWhereTheyAreRoundedStochastically) {
  constexpr int kSteps = 500;
  constexpr std::size_t kElements = 4096;
  AdamWOptions o;
  o.beta2 = 0.999;
  Narrow nearest(kElements, 1, 1), stochastic(kElements, 1, 1);
  stochastic.parameter.rounding = Rounding::stochastic;
  nearest.run(kSteps, o, 0, 0);
  stochastic.run(kSteps, o, 0, 0);
  EXPECT_EQ(Narrow::mean(nearest.second), 1);
  EXPECT_NEAR(Narrow::mean(stochastic.second), std::pow(0.999, kSteps),
              6 * 0x1p-9 * std::sqrt(static_cast<double>(kSteps) / kElements));
}

/// In tf32 it is two units of 2^-11 just below 1 and more than one just above 1/2: rounded to nearest the
/// moment shrinks, at most by half of a unit too much or too little each time.
TEST(NarrowMoments, OfTf32MoveWhereTheyAreRoundedToNearest) {
  constexpr int kSteps = 500;
  AdamWOptions o;
  o.beta2 = 0.999;
  std::vector<float> master(kCount, 1), gradient(kCount), first(kCount), second(kCount, 1);
  Parameter p;
  p.count = kCount;
  p.master = {master.data(), Scalar::f32, 1};
  p.gradient = {gradient.data(), Scalar::f32, 1};
  p.first_moment = {first.data(), Scalar::tf32, 1};
  p.second_moment = {second.data(), Scalar::tf32, 1};
  for (int t = 1; t <= kSteps; ++t) adamw_step(kContext, std::span(&p, 1), o, 0, t, 1, t);
  EXPECT_LT(second[0], 0.8);
  EXPECT_NEAR(second[0], std::pow(0.999, kSteps), kSteps * 0x1p-12);
}

/// A weight of 1 moves by lr = 1e-4 a step, a fortieth of bf16's last place. With a compensation it arrives:
/// what is lost is at most half a unit in the last place of the compensation, which is below 2^-8, a step.
/// The moments in bf16 change what a step is by 2^-8 of it, each.
TEST(NarrowWeights, MoveBySmallStepsOnlyWhereTheyAreCompensated) {
  constexpr int kSteps = 100;
  constexpr double kLr = 1e-4;
  AdamWOptions o;
  Narrow lost(3, 1, 0), kept(3, 1, 0);
  kept.parameter.compensation = Narrow::view(kept.compensation);
  lost.run(kSteps, o, kLr, 0.5);
  kept.run(kSteps, o, kLr, 0.5);
  EXPECT_EQ(Narrow::mean(lost.master), 1);
  EXPECT_NEAR(Narrow::mean(kept.master) + Narrow::mean(kept.compensation), 1 - kSteps * kLr,
              kSteps * (0x1p-17 + 2 * 0x1p-8 * kLr));
  EXPECT_NEAR(Narrow::mean(kept.master), 1 - kSteps * kLr, 0x1p-8);
}

}  // namespace
}  // namespace mantissa::optim
