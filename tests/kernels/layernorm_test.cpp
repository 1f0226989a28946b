// LayerNorm: the bits of the header's order of operations on every instruction set and thread count and in
// every format, errors within the bound of that arithmetic, and gradients that equal the derivative.
#include "mantissa/kernels/layernorm.h"

#include <gtest/gtest.h>

#include <optional>

#include "kernels/reference/layernorm.h"
#include "kernels/row_testing.h"
#include "mantissa/core/numeric/round.h"

namespace mantissa::kernels::layernorm_test {
namespace {

using testing::Batch;
using testing::contexts;
using testing::describe;
using testing::is_f64;
using testing::kSeed;
using testing::lane_sum;
using testing::rounding_error;
using testing::Tensor;
using testing::token_sum;

constexpr double kEps = 1e-5;

/// Formats of x, of gain and bias, and of y. Gradients have the format of the value.
struct Formats {
  Scalar x, gain, y;
  Scalar arithmetic() const { return is_f64(x) ? Scalar::f64 : Scalar::f32; }
};

struct Case {
  Formats formats;
  std::int64_t channels;
  bool with_bias = true;
};

/// A problem and the kernels' results. The rows' means are about 2 standard deviations.
struct Problem {
  Problem(const Case& c, const Batch& b)
      : batch(b),
        channels(c.channels),
        with_bias(c.with_bias),
        x(c.formats.x, b.tokens, channels, 3),
        gain(c.formats.gain, 1, channels),
        bias(gain),
        dy(c.formats.y, b.tokens, channels, 1),
        addend(c.formats.x, b.tokens, channels),
        y(c.formats.y, b.tokens, channels, 5),
        mean(c.formats.arithmetic(), 1, b.tokens),
        rstd(mean),
        dx(c.formats.x, b.tokens, channels, 2),
        dgain(c.formats.arithmetic(), 1, channels) {
    std::mt19937 random(kSeed);
    x.fill_normal(random, 2);
    gain.fill_normal(random, 1);
    bias.fill_normal(random);
    dy.fill_normal(random);
    addend.fill_normal(random);
    dgain.fill_normal(random);
  }
  void forward(const Context& ctx) {
    layernorm(
        ctx, batch.extent().tokens,
        {channels, kEps, x, gain, with_bias ? ConstMatrix(bias) : ConstMatrix{}, y, mean, rstd, statistics});
  }
  void backward(const Context& ctx, bool with_addend) {
    layernorm_backward(ctx, batch.extent().tokens,
                       {channels, x, gain, mean, rstd, dy, with_addend ? ConstMatrix(addend) : ConstMatrix{},
                        dx, statistics});
  }
  void gain_gradient(const Context& ctx, bool accumulate) {
    layernorm_gain(ctx, batch.extent(), {channels, x, mean, rstd, dy, dgain, accumulate});
  }

  Batch batch;
  std::int64_t channels;
  bool with_bias;
  Tensor x, gain, bias, dy, addend, y, mean, rstd, dx, dgain;
  Scalar statistics = Scalar::f64;
};

/// The header's formulas, operation by operation in T, for token t.
template <class T>
struct Spelled {
  Spelled(const Problem& problem, std::int64_t token) : p(problem), t(token) {
    mean = kept(lane_sum<T>(p.channels, [&](std::int64_t c, T sum) { return sum + x(c); }) / n());
    const auto square = [&](std::int64_t c, T sum) { return std::fma(x(c) - mean, x(c) - mean, sum); };
    rstd = kept(1 / std::sqrt(kept(lane_sum<T>(p.channels, square) / n()) + static_cast<T>(kEps)));
    mean_g = kept(lane_sum<T>(p.channels, [&](std::int64_t c, T sum) { return sum + g(c); }) / n());
    const auto product = [&](std::int64_t c, T sum) { return std::fma(g(c), normal(c), sum); };
    pull = kept(lane_sum<T>(p.channels, product) / n());
  }
  T n() const { return static_cast<T>(p.channels); }
  T kept(T value) const { return static_cast<T>(round_to(static_cast<double>(value), p.statistics)); }
  T x(std::int64_t c) const { return static_cast<T>(p.x.get(t, c)); }
  T gain(std::int64_t c) const { return static_cast<T>(p.gain.get(0, c)); }
  T normal(std::int64_t c) const { return (x(c) - mean) * rstd; }
  T g(std::int64_t c) const { return static_cast<T>(p.dy.get(t, c)) * gain(c); }
  T y(std::int64_t c) const {
    return p.with_bias ? std::fma(normal(c), gain(c), static_cast<T>(p.bias.get(0, c))) : normal(c) * gain(c);
  }
  T dx(std::int64_t c, bool with_addend) const {
    const T value = rstd * std::fma(-normal(c), pull, g(c) - mean_g);
    return with_addend ? value + static_cast<T>(p.addend.get(t, c)) : value;
  }

  const Problem& p;
  std::int64_t t;
  T mean, rstd, mean_g, pull;
};

template <class T>
void expect_spelled_rows(const Problem& p, bool with_addend) {
  Tensor y = p.y, dx = p.dx, mean = p.mean, rstd = p.rstd;
  for (std::int64_t t = 0; t < p.x.rows; ++t) {
    const Spelled<T> spelled(p, t);
    mean.set(0, t, static_cast<double>(spelled.mean));
    rstd.set(0, t, static_cast<double>(spelled.rstd));
    for (std::int64_t c = 0; c < p.channels; ++c) {
      y.set(t, c, static_cast<double>(spelled.y(c)));
      dx.set(t, c, static_cast<double>(spelled.dx(c, with_addend)));
    }
  }
  EXPECT_EQ(p.y, y);
  EXPECT_EQ(p.mean, mean);
  EXPECT_EQ(p.rstd, rstd);
  EXPECT_EQ(p.dx, dx);
}

class LayerNormCases : public ::testing::TestWithParam<Case> {};

TEST_P(LayerNormCases, HasTheBitsOfTheStatedOrderEverywhere) {
  for (const bool with_addend : {false, true}) {
    std::optional<Problem> first;
    for (const Context& ctx : contexts()) {
      SCOPED_TRACE(describe(ctx));
      Problem p(GetParam(), Batch({5, 20}));
      p.forward(ctx);
      p.backward(ctx, with_addend);
      if (!first) {
        is_f64(GetParam().formats.x) ? expect_spelled_rows<double>(p, with_addend)
                                     : expect_spelled_rows<float>(p, with_addend);
        first = p;
      }
      EXPECT_EQ(p.y, first->y);
      EXPECT_EQ(p.mean, first->mean);
      EXPECT_EQ(p.rstd, first->rstd);
      EXPECT_EQ(p.dx, first->dx);
    }
  }
}

TEST(LayerNormStatistics, RoundToALowerFormat) {
  for (const Scalar s : {Scalar::tf32, Scalar::bf16, Scalar::f16, Scalar::e5m2, Scalar::e4m3}) {
    for (const Context& ctx : contexts()) {
      SCOPED_TRACE(::testing::Message() << name(s) << ' ' << describe(ctx));
      Problem p({{Scalar::f32, Scalar::f32, Scalar::bf16}, 2051}, Batch({5, 3}));
      p.statistics = s;
      p.forward(ctx);
      p.backward(ctx, true);
      expect_spelled_rows<float>(p, true);
    }
  }
}

template <class T>
void expect_spelled_gain(const Problem& p, const Tensor& before, bool accumulate) {
  Tensor dgain = p.dgain;
  for (std::int64_t c = 0; c < p.channels; ++c) {
    const T start = accumulate ? static_cast<T>(before.get(0, c)) : T{0};
    const auto chain = [&](std::int64_t t, T sum) {
      const T centred = static_cast<T>(p.x.get(t, c)) - static_cast<T>(p.mean.get(0, t));
      return std::fma(static_cast<T>(p.dy.get(t, c)), centred * static_cast<T>(p.rstd.get(0, t)), sum);
    };
    dgain.set(0, c, static_cast<double>(token_sum<T>(p.batch, start, chain)));
  }
  EXPECT_EQ(p.dgain, dgain);
}

TEST_P(LayerNormCases, GainGradientHasTheBitsOfTheStatedOrderEverywhere) {
  for (const std::int64_t leaf : {1, 2}) {
    Problem p(GetParam(), Batch({30, 3, 257}, leaf));
    p.forward({.simd = best_simd()});
    const Tensor before = p.dgain;
    for (const bool accumulate : {false, true}) {
      p.dgain = before;
      p.gain_gradient({.simd = best_simd()}, accumulate);
      is_f64(GetParam().formats.x) ? expect_spelled_gain<double>(p, before, accumulate)
                                   : expect_spelled_gain<float>(p, before, accumulate);
      const Tensor first = p.dgain;
      for (const Context& ctx : contexts()) {
        p.dgain = before;
        p.gain_gradient(ctx, accumulate);
        EXPECT_EQ(p.dgain, first) << describe(ctx);
      }
    }
  }
}

/// Bounds in units of the arithmetic's roundoff u, to first order with a margin for the second: a sum over
/// lanes and its division have n/16 + 6 roundings. The mean's error e is the same for the whole row. The
/// exact centred values add up to 0, so e raises the variance only by e². A product of two operands has 1
/// rounding.
TEST_P(LayerNormCases, IsWithinTheErrorOfItsArithmetic) {
  const auto& [formats, channels, with_bias] = GetParam();
  Problem p(GetParam(), Batch({9}));
  p.forward({.simd = best_simd()});
  p.backward({.simd = best_simd()}, false);
  const std::vector<double> x = p.x.values(), gain = p.gain.values(), bias = p.bias.values(),
                            dy = p.dy.values();
  std::vector<double> y(x.size()), mean(9), rstd(9), dx(x.size());
  reference::layernorm(9, channels, kEps, x.data(), gain.data(), with_bias ? bias.data() : nullptr, y.data(),
                       mean.data(), rstd.data());
  reference::layernorm_backward(9, channels, x.data(), gain.data(), mean.data(), rstd.data(), dy.data(),
                                dx.data());
  // The reference's own sums have n roundings in f64.
  const double n = static_cast<double>(channels), u = 1.01 * unit_roundoff(formats.arithmetic());
  const double sum_error = (n / 16 + 6) * u + n * unit_roundoff(Scalar::f64);
  for (std::int64_t t = 0; t < 9; ++t) {
    const std::size_t row = static_cast<std::size_t>(t * channels);
    const double m = mean[static_cast<std::size_t>(t)], r = rstd[static_cast<std::size_t>(t)];
    const auto average = [&](const auto& of) {
      double sum = 0;
      for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) sum += of(c);
      return sum / n;
    };
    const auto normal = [&](std::size_t c) { return std::abs(x[row + c] - m) * r; };
    const auto g = [&](std::size_t c) { return std::abs(dy[row + c] * gain[c]); };
    const double mean_error = sum_error * average([&](std::size_t c) { return std::abs(x[row + c]); });
    const double rstd_error = (sum_error + 4 * u + std::pow(mean_error * r, 2)) / 2 + 2 * u;
    const auto normal_error = [&](std::size_t c) {
      return mean_error * r + normal(c) * (rstd_error + 2 * u);
    };
    const double average_g = average(g);
    const double pull = average([&](std::size_t c) { return g(c) * normal(c); });
    const double pull_error =
        average([&](std::size_t c) { return g(c) * normal_error(c); }) + (sum_error + u) * pull;
    for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c) {
      const std::size_t i = row + c;
      const double y_error = std::abs(gain[c]) * (normal_error(c) + u * normal(c)) + u * std::abs(y[i]);
      EXPECT_NEAR(p.y.get(t, static_cast<std::int64_t>(c)), y[i],
                  y_error + rounding_error(formats.y, std::abs(y[i]) + y_error));
      const double rest = g(c) + average_g + normal(c) * pull;
      const double rest_error = u * g(c) + (sum_error + u) * average_g + u * (g(c) + average_g) +
                                normal(c) * pull_error + pull * normal_error(c) + u * rest;
      const double dx_error = r * (rest_error + rest * (rstd_error + u));
      EXPECT_NEAR(p.dx.get(t, static_cast<std::int64_t>(c)), dx[i],
                  dx_error + rounding_error(formats.x, std::abs(dx[i]) + dx_error));
    }
  }
}

constexpr Formats all_of(Scalar s) {
  return {s, s, s};
}

INSTANTIATE_TEST_SUITE_P(All, LayerNormCases,
                         ::testing::Values(Case{all_of(Scalar::f64), 50},
                                           Case{all_of(Scalar::f64), 2100, false},
                                           Case{all_of(Scalar::f32), 1}, Case{all_of(Scalar::f32), 16},
                                           Case{all_of(Scalar::f32), 77, false},
                                           Case{all_of(Scalar::f32), 768}, Case{all_of(Scalar::f32), 4133},
                                           Case{all_of(Scalar::bf16), 64}, Case{all_of(Scalar::bf16), 2111},
                                           Case{all_of(Scalar::f16), 50}, Case{all_of(Scalar::tf32), 50},
                                           Case{all_of(Scalar::e5m2), 50}, Case{all_of(Scalar::e4m3), 50},
                                           Case{{Scalar::f32, Scalar::f32, Scalar::bf16}, 256},
                                           Case{{Scalar::bf16, Scalar::f32, Scalar::f16}, 96, false}),
                         [](const auto& info) {
                           const Formats& f = info.param.formats;
                           return std::string(name(f.x)) + "_" + std::string(name(f.gain)) + "_" +
                                  std::string(name(f.y)) + "_" + std::to_string(info.param.channels) +
                                  (info.param.with_bias ? "" : "_without_bias");
                         });

TEST(LayerNorm, WorksInPlaceAndWithTheAddendInPlace) {
  const Batch batch({12});
  Problem apart({{Scalar::bf16, Scalar::f32, Scalar::bf16}, 2100}, batch);
  const Context ctx{.simd = best_simd(), .threads = 2};
  apart.forward(ctx);
  apart.backward(ctx, true);
  Tensor in_place = apart.x, mean = apart.mean, rstd = apart.rstd, sum = apart.addend;
  layernorm(ctx, batch.extent().tokens, {2100, kEps, in_place, apart.gain, apart.bias, in_place, mean, rstd});
  layernorm_backward(ctx, batch.extent().tokens,
                     {2100, apart.x, apart.gain, apart.mean, apart.rstd, apart.dy, sum, sum});
  EXPECT_EQ(in_place.values(), apart.y.values());
  EXPECT_EQ(sum.values(), apart.dx.values());
}

/// A row of equal values has no variance: y is the bias, and dx is 0.
TEST(LayerNorm, OfARowOfEqualValuesIsTheBias) {
  Problem p({all_of(Scalar::f32), 32}, Batch({2}));
  for (std::int64_t c = 0; c < 32; ++c) p.x.set(1, c, 3);
  p.forward({.simd = best_simd()});
  for (std::int64_t c = 0; c < 32; ++c) EXPECT_EQ(p.y.get(1, c), p.bias.get(0, c));
}

/// Central differences of Σ dy ∘ y in double. For steps of 1e-5 and values of order 1, the truncation error
/// is about h² and the cancellation about 1e-16 · terms / h, both below 1e-8.
TEST(LayerNorm, ReferenceGradientIsTheDerivative) {
  constexpr std::int64_t kTokens = 3, kChannels = 11;
  std::mt19937 random(kSeed);
  std::vector<double> x = Tensor(Scalar::f64, kTokens, kChannels).fill_normal(random, 0.3).values();
  std::vector<double> gain = Tensor(Scalar::f64, 1, kChannels).fill_normal(random, 1).values();
  const std::vector<double> dy = Tensor(Scalar::f64, kTokens, kChannels).fill_normal(random).values();
  std::vector<double> y(x.size()), mean(kTokens), rstd(kTokens), dx(x.size()), dgain(gain.size());
  const auto loss = [&] {
    reference::layernorm(kTokens, kChannels, kEps, x.data(), gain.data(), nullptr, y.data(), mean.data(),
                         rstd.data());
    double sum = 0;
    for (std::size_t i = 0; i < y.size(); ++i) sum += dy[i] * y[i];
    return sum;
  };
  const auto slope = [&](double& value) {
    const double h = 1e-5, at = value;
    value = at + h;
    const double up = loss();
    value = at - h;
    const double down = loss();
    value = at;
    return (up - down) / (2 * h);
  };
  loss();
  reference::layernorm_backward(kTokens, kChannels, x.data(), gain.data(), mean.data(), rstd.data(),
                                dy.data(), dx.data());
  reference::layernorm_gain(kTokens, kChannels, x.data(), mean.data(), rstd.data(), dy.data(), dgain.data());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(dx[i], slope(x[i]), 1e-8) << "x " << i;
  for (std::size_t i = 0; i < gain.size(); ++i) EXPECT_NEAR(dgain[i], slope(gain[i]), 1e-8) << "gain " << i;
}

}  // namespace
}  // namespace mantissa::kernels::layernorm_test
