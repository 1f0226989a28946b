// The optimizer's sweeps: AdamW operation by operation in every format. The bits are the same on every
// instruction set and thread count.
#include "mantissa/kernels/update.h"
#include "kernels/adamw.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <utility>

#include "kernels/update_parameter.h"
#include "mantissa/core/numeric/philox.h"
#include "mantissa/core/numeric/round.h"

namespace mantissa::kernels::update_test {
namespace {

using testing::contexts;
using testing::describe;
using testing::Formats;
using testing::is_f64;
using testing::kKey;
using testing::kSeed;
using testing::Parameter;
using testing::rounding_error;
using testing::Tensor;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Returns x as an update stores element i of a tensor of type s.
template <class T>
double stored(const AdamW& u, Scalar s, T x, std::int64_t i, RandomUse use) {
  const RandomStream stream(u.key.seed, use, u.key.name_hash, u.key.step);
  const bool rounds =
      traits(s).mantissa_bits < traits(sizeof(T) == 8 ? Scalar::f64 : Scalar::f32).mantissa_bits;
  return rounds
             ? round_to(static_cast<double>(x), s, {u.rounding}, stream.bits(static_cast<std::uint64_t>(i)))
             : static_cast<double>(x);
}

template <class T>
void spelled_update(const AdamW& u, Parameter& p) {
  const double t = static_cast<double>(u.t);
  const T beta1 = static_cast<T>(u.beta1), rest1 = static_cast<T>(1 - u.beta1);
  const T beta2 = static_cast<T>(u.beta2), rest2 = static_cast<T>(1 - u.beta2);
  const T c1 = static_cast<T>(1 - std::pow(u.beta1, t)), c2 = static_cast<T>(1 - std::pow(u.beta2, t));
  const T keep = static_cast<T>(1 - u.lr * u.weight_decay), decay = static_cast<T>(u.lr * u.weight_decay);
  const auto r = [&u](T x) { return static_cast<T>(round_to(static_cast<double>(x), u.arithmetic)); };
  for (std::int64_t i = 0; i < u.count; ++i) {
    const T g = r(static_cast<T>(p.gradient.get(0, i)) * static_cast<T>(u.gradient_factor));
    const T m = r(r(beta1 * static_cast<T>(p.first.get(0, i))) + r(rest1 * g));
    const T v = r(r(beta2 * static_cast<T>(p.second.get(0, i))) + r(rest2 * r(g * g)));
    const T root = r(r(std::sqrt(r(v / c2))) + static_cast<T>(u.eps));
    const T update = r(r(static_cast<T>(u.lr) * r(m / c1)) / root);
    const T w = static_cast<T>(p.master.get(0, i));
    const T change = r(static_cast<T>(p.compensation.get(0, i)) - r(r(decay * w) + update));
    const T next = p.compensated ? w + change : r(r(w * keep) - update);
    p.master.set(0, i, stored(u, p.master.type, next, i, RandomUse::rounding));
    const T lost = change - (static_cast<T>(p.master.get(0, i)) - w);
    if (p.compensated) p.compensation.set(0, i, stored(u, p.master.type, lost, i, RandomUse::compensation));
    p.first.set(0, i, stored(u, p.first.type, m, i, RandomUse::first_moment));
    p.second.set(0, i, stored(u, p.second.type, v, i, RandomUse::second_moment));
    p.copy.set(0, i, p.master.get(0, i));
  }
}

TEST(LoweredUpdate, RoundsTheResultOfEveryOperation) {
  for (const Scalar lowered : {Scalar::tf32, Scalar::bf16, Scalar::f16, Scalar::e5m2}) {
    for (const bool compensated : {false, true}) {
      const Formats f{Scalar::bf16,      Scalar::f32, Scalar::f32, Scalar::f32,
                      Rounding::nearest, compensated, lowered};
      const Parameter before(f, 1041);
      Parameter expected = before;
      spelled_update<float>(expected.update(), expected);
      for (const Context& ctx : contexts()) {
        Parameter p = before;
        adamw(ctx, p.update());
        EXPECT_TRUE(p == expected) << name(lowered) << ' ' << compensated << ' ' << describe(ctx);
      }
    }
  }
}

class AdamWFormats : public ::testing::TestWithParam<Formats> {};

TEST_P(AdamWFormats, HaveTheBitsOfTheStatedOperationsEverywhere) {
  const Formats& f = GetParam();
  for (const std::int64_t count : {1, 15, 1024, 34001}) {
    const Parameter before(f, count);
    Parameter expected = before;
    is_f64(f.master) ? spelled_update<double>(expected.update(), expected)
                     : spelled_update<float>(expected.update(), expected);
    for (const Context& ctx : contexts()) {
      Parameter p = before;
      adamw(ctx, p.update());
      EXPECT_TRUE(p == expected) << count << " elements, " << describe(ctx);
    }
  }
}

/// The largest error of storing x: half a unit in the last place with rounding to nearest, else a whole one.
double storing_error(const Formats& f, Scalar s, double x) {
  return (f.rounding == Rounding::nearest ? 1 : 2) * rounding_error(s, x);
}

/// First-order counts of roundings. With M = β1|m| + (1−β1)|g|: g has 2, a term of m its coefficient and
/// product and those of g, the sum 1: 5u·M. v: 8u, all terms positive. The step: m/c1 and lr 4 more; the root
/// half of v's, c2's and the division's, then 3 for itself, ε and the sum: 8; the quotient 1. w·keep: 2, and
/// 1 for the difference. With a compensation the sum of both follows the step, except for the rounding loss
/// of the new compensation: three more roundings, of sizes below |w| + |c| + |step|.
TEST_P(AdamWFormats, AreWithinTheErrorOfTheirArithmetic) {
  const Formats& f = GetParam();
  const Parameter before(f, 2000);
  Parameter p = before;
  const AdamW u = p.update();
  adamw({.simd = best_simd()}, u);
  const double r = 1.01 * (unit_roundoff(f.arithmetic()) + unit_roundoff(Scalar::f64));
  for (std::int64_t i = 0; i < u.count; ++i) {
    const double w = before.master.get(0, i), m = before.first.get(0, i), v = before.second.get(0, i);
    const double g = before.gradient.get(0, i);
    const reference::AdamWElement exact = reference::adamw(u, {w, m, v}, g);
    const double size = u.beta1 * std::abs(m) + (1 - u.beta1) * std::abs(g * u.gradient_factor);
    const double step =
        reference::adamw(u, {0, size / u.beta1, v}, 0).w;  // −lr·(M/c1) / …, with a smaller root
    const double m_error = 5 * r * size, v_error = 8 * r * exact.v;
    const double w_error = r * (3 * std::abs(w) + 19 * std::abs(step) + std::abs(exact.w));
    EXPECT_NEAR(p.first.get(0, i), exact.m,
                m_error + storing_error(f, f.moment, std::abs(exact.m) + m_error));
    EXPECT_NEAR(p.second.get(0, i), exact.v, v_error + storing_error(f, f.moment, exact.v + v_error));
    if (!f.compensated) {
      EXPECT_NEAR(p.master.get(0, i), exact.w,
                  w_error + storing_error(f, f.master, std::abs(exact.w) + w_error));
      continue;
    }
    const double c = before.compensation.get(0, i), c_after = p.compensation.get(0, i);
    EXPECT_NEAR(p.master.get(0, i) + c_after, exact.w + c,
                w_error + 3 * r * (std::abs(w) + std::abs(c) + std::abs(step)) +
                    storing_error(f, f.master, std::abs(c_after)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, AdamWFormats,
    ::testing::Values(
        Formats{Scalar::f64, Scalar::f32, Scalar::f64, Scalar::f64},
        Formats{Scalar::f32, Scalar::bf16, Scalar::f32, Scalar::f32},
        Formats{Scalar::f32, Scalar::f16, Scalar::f32, Scalar::f32},
        Formats{Scalar::f32, Scalar::e4m3, Scalar::bf16, Scalar::f32},
        Formats{Scalar::f32, Scalar::tf32, Scalar::f16, Scalar::bf16},
        Formats{Scalar::bf16, Scalar::e5m2, Scalar::bf16, Scalar::f32},
        Formats{Scalar::bf16, Scalar::f32, Scalar::bf16, Scalar::bf16},
        Formats{Scalar::f16, Scalar::f16, Scalar::f16, Scalar::f32},
        Formats{Scalar::tf32, Scalar::bf16, Scalar::tf32, Scalar::f16},
        Formats{Scalar::bf16, Scalar::f16, Scalar::bf16, Scalar::bf16, Rounding::stochastic},
        Formats{Scalar::f32, Scalar::bf16, Scalar::f32, Scalar::bf16, Rounding::stochastic},
        Formats{Scalar::f16, Scalar::f32, Scalar::f16, Scalar::f32, Rounding::stochastic},
        Formats{Scalar::bf16, Scalar::f32, Scalar::bf16, Scalar::f32, Rounding::toward_zero},
        Formats{Scalar::bf16, Scalar::bf16, Scalar::bf16, Scalar::bf16, Rounding::nearest, true},
        Formats{Scalar::f16, Scalar::bf16, Scalar::f16, Scalar::f32, Rounding::nearest, true},
        Formats{Scalar::bf16, Scalar::bf16, Scalar::f32, Scalar::bf16, Rounding::stochastic, true},
        Formats{Scalar::e4m3, Scalar::bf16, Scalar::e5m2, Scalar::f32},
        Formats{Scalar::e5m2, Scalar::f16, Scalar::e4m3, Scalar::tf32},
        Formats{Scalar::e4m3, Scalar::bf16, Scalar::f32, Scalar::tf32, Rounding::stochastic},
        Formats{Scalar::e5m2, Scalar::f32, Scalar::tf32, Scalar::bf16, Rounding::stochastic},
        Formats{Scalar::tf32, Scalar::bf16, Scalar::tf32, Scalar::tf32, Rounding::stochastic},
        Formats{Scalar::e4m3, Scalar::f32, Scalar::f32, Scalar::f32, Rounding::toward_zero},
        Formats{Scalar::e5m2, Scalar::f32, Scalar::e5m2, Scalar::f32, Rounding::toward_zero},
        Formats{Scalar::tf32, Scalar::f32, Scalar::tf32, Scalar::f32, Rounding::toward_zero},
        Formats{Scalar::e4m3, Scalar::bf16, Scalar::f32, Scalar::f32, Rounding::nearest, true},
        Formats{Scalar::e5m2, Scalar::bf16, Scalar::bf16, Scalar::bf16, Rounding::nearest, true},
        Formats{Scalar::tf32, Scalar::f32, Scalar::f32, Scalar::tf32, Rounding::toward_zero, true},
        Formats{Scalar::e4m3, Scalar::bf16, Scalar::e4m3, Scalar::bf16, Rounding::stochastic, true}),
    [](const auto& info) {
      const Formats& f = info.param;
      return std::string(name(f.master)) + "_" + std::string(name(f.copy)) + "_" +
             std::string(name(f.gradient)) + "_" + std::string(name(f.moment)) +
             (f.rounding == Rounding::stochastic    ? "_stochastic"
              : f.rounding == Rounding::toward_zero ? "_toward_zero"
                                                    : "") +
             (f.compensated ? "_compensated" : "");
    });

/// Weights near the end of their format, moved by updates with gradients of one sign.
class WeightOverflows : public ::testing::TestWithParam<Formats> {};

TEST_P(WeightOverflows, AreTheFirstThatTheUpdateWouldStoreAsInfOrNan) {
  const Formats& f = GetParam();
  const double most = traits(f.master).max_finite;
  for (const std::int64_t count : {1, 1023, 34001}) {
    for (const std::int64_t where : {std::int64_t{0}, count / 2, count - 1}) {
      for (const double sign : {1.0, -1.0}) {
        Parameter p(f, count);
        for (std::int64_t i = where; i < count; i += 5) {
          p.master.set(0, i, sign * most);
          p.gradient.set(0, i, -sign);
          p.first.set(0, i, -sign);
        }
        AdamW u = p.update();
        for (const double lr : {1e-6, most / 100, most / 2}) {
          u.lr = lr;
          Parameter updated = p;
          AdamW apply = updated.update();
          apply.lr = lr;
          adamw({.simd = best_simd()}, apply);
          std::int64_t first = 0;
          while (first < count && std::isfinite(updated.master.get(0, first))) ++first;
          const Parameter before = p;
          for (const Context& ctx : contexts()) {
            const std::optional<WeightOverflow> found = find_weight_overflow(ctx, u);
            ASSERT_EQ(found.has_value(), first < count) << lr << ", " << describe(ctx);
            if (!found) continue;
            EXPECT_EQ(found->element, first) << describe(ctx);
            EXPECT_GT(std::abs(found->value), most) << describe(ctx);
          }
          EXPECT_TRUE(p == before);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, WeightOverflows,
    ::testing::Values(Formats{Scalar::e4m3, Scalar::f32, Scalar::f32, Scalar::f32},
                      Formats{Scalar::e5m2, Scalar::f32, Scalar::e5m2, Scalar::f32},
                      Formats{Scalar::f16, Scalar::f16, Scalar::f16, Scalar::bf16},
                      Formats{Scalar::e4m3, Scalar::f32, Scalar::f32, Scalar::f32, Rounding::stochastic},
                      Formats{Scalar::e4m3, Scalar::f32, Scalar::f32, Scalar::f32, Rounding::toward_zero},
                      Formats{Scalar::e5m2, Scalar::f32, Scalar::f32, Scalar::f32, Rounding::nearest, true}),
    [](const auto& info) { return std::string(name(info.param.master)) + "_" + std::to_string(info.index); });

TEST(AdamW, NeedsNoCopy) {
  Parameter with({Scalar::f32, Scalar::bf16, Scalar::f32, Scalar::f32}, 50), without = with;
  adamw({.simd = best_simd()}, with.update());
  AdamW u = without.update();
  u.copy = nullptr;
  adamw({.simd = best_simd()}, u);
  EXPECT_EQ(with.master, without.master);
}

/// Decay is decoupled: it changes a weight with zero gradient, and no moment.
TEST(AdamW, DecaysWithoutAGradient) {
  const Formats f{Scalar::f64, Scalar::f64, Scalar::f64, Scalar::f64};
  Parameter p(f, 1);
  p.master.set(0, 0, 2);
  for (Tensor* t : {&p.gradient, &p.first, &p.second}) t->set(0, 0, 0);
  AdamW u = p.update();
  u.lr = 0.5;
  u.weight_decay = 0.25;
  adamw({.simd = best_simd()}, u);
  EXPECT_EQ(p.master.get(0, 0), 2 * (1 - 0.125));
  EXPECT_EQ(p.first.get(0, 0), 0);
}

// Written by tools/golden_rows.py: torch.optim.AdamW in f64.
constexpr double kGoldenWeights[] = {0x1.0000000000000p+0, -0x1.0000000000000p+1, 0x1.0000000000000p-1,
                                     0x1.8000000000000p+1};
constexpr double kGoldenGradients[] = {0x1.aed548f090ceep-1, 0x1.210386db6d55bp-3,  -0x1.eaf81f5e09933p-1,
                                       0x1.50608c26d0a08p-1, -0x1.837b9dddc1eaep-1, -0x1.1e1f18ab0a2c0p-2,
                                       0x1.fa8d2a028cf7bp-1, -0x1.1689ef5f34f52p-1, 0x1.50608c26d0a08p-1,
                                       0x1.a6026360c2f91p-2, -0x1.fffeb762e93ebp-1, 0x1.ae4044881c506p-2};
constexpr double kGoldenUpdated[] = {0x1.f7b3fea2744ecp-1, -0x1.007a93a9b8420p+1, 0x1.05b22ccef80a0p-1,
                                     0x1.7d1e2a55d7108p+1};
constexpr double kGoldenFirstMoment[] = {0x1.0d4b3e1b45ea9p-4, 0x1.c27b1ea565eadp-6, -0x1.6b06eb178a684p-4,
                                         0x1.7b0cbaada5929p-5};
constexpr double kGoldenSecondMoment[] = {0x1.4ab4fc85d04d8p-4, 0x1.ad3c2071f5ec8p-7, 0x1.1a992eb016458p-3,
                                          0x1.5b0876d68b1a7p-5};

/// Three updates of about ten roundings of values below 4.
TEST(AdamW, AgreesWithPyTorch) {
  const double tolerance = 128 * unit_roundoff(Scalar::f64);
  Tensor w(Scalar::f64, 1, 4, kGoldenWeights), zeros(Scalar::f64, 1, 4, std::array<double, 4>{}.data());
  Tensor m = zeros, v = zeros;
  for (std::int64_t t = 1; t <= 3; ++t) {
    const Tensor gradient(Scalar::f64, 1, 4, kGoldenGradients + 4 * (t - 1));
    adamw({.simd = best_simd()}, {.count = 4,
                                  .master = w.bytes.data(),
                                  .master_type = Scalar::f64,
                                  .gradient = gradient.bytes.data(),
                                  .gradient_type = Scalar::f64,
                                  .first_moment = m.bytes.data(),
                                  .second_moment = v.bytes.data(),
                                  .moment_type = Scalar::f64,
                                  .lr = 1e-2,
                                  .beta1 = 0.9,
                                  .beta2 = 0.95,
                                  .eps = 1e-8,
                                  .weight_decay = 0.1,
                                  .t = t});
  }
  for (std::int64_t i = 0; i < 4; ++i) {
    EXPECT_NEAR(w.get(0, i), kGoldenUpdated[i], tolerance);
    EXPECT_NEAR(m.get(0, i), kGoldenFirstMoment[i], tolerance);
    EXPECT_NEAR(v.get(0, i), kGoldenSecondMoment[i], tolerance);
  }
}

}  // namespace
}  // namespace mantissa::kernels::update_test
