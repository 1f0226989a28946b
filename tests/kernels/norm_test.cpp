// RMSNorm of tokens and of their heads: the bits of the header's order of operations on every instruction set
// and thread count and in every format, errors within the bound of that arithmetic, and gradients that equal
// the derivative.
#include "mantissa/kernels/norm.h"

#include <gtest/gtest.h>

#include <optional>

#include "kernels/reference/norm.h"
#include "kernels/row_testing.h"
#include "mantissa/core/numeric/round.h"

namespace mantissa::kernels::norm_test {
namespace {

using testing::Batch;
using testing::block_sum;
using testing::contexts;
using testing::describe;
using testing::is_f64;
using testing::kSeed;
using testing::lane_sum;
using testing::rounding_error;
using testing::Tensor;

constexpr double kEps = 1e-5;

/// Formats of x, gain and y. Gradients have the format of the value.
struct Formats {
  Scalar x, gain, y;
  Scalar arithmetic() const { return is_f64(x) ? Scalar::f64 : Scalar::f32; }
};

struct Case {
  Formats formats;
  std::int64_t channels;
  std::int64_t groups = 1;
  double gain_offset = 0;
};

/// A problem and the kernels' results.
struct Problem {
  Problem(const Case& c, const Batch& b)
      : batch(b),
        channels(c.channels),
        groups(c.groups),
        gain_offset(c.gain_offset),
        x(c.formats.x, b.tokens, groups * channels, 3),
        gain(c.formats.gain, 1, channels),
        dy(c.formats.y, b.tokens, groups * channels, 1),
        addend(c.formats.x, b.tokens, groups * channels),
        y(c.formats.y, b.tokens, groups * channels, 5),
        rstd(c.formats.arithmetic(), b.tokens, groups),
        dx(c.formats.x, b.tokens, groups * channels, 2),
        dgain(c.formats.arithmetic(), 1, channels) {
    std::mt19937 random(kSeed);
    x.fill_normal(random, 0.5);
    gain.fill_normal(random, 1);
    dy.fill_normal(random);
    addend.fill_normal(random);
    dgain.fill_normal(random);
  }
  void forward(const Context& ctx) {
    rmsnorm(ctx, batch.extent().tokens, {channels, kEps, x, gain, y, rstd, statistics, gain_offset, groups});
  }
  void backward(const Context& ctx, bool with_addend) {
    rmsnorm_backward(ctx, batch.extent().tokens,
                     {channels, x, gain, rstd, dy, with_addend ? ConstMatrix(addend) : ConstMatrix{}, dx,
                      statistics, gain_offset, groups});
  }
  void gain_gradient(const Context& ctx, bool accumulate) {
    rmsnorm_gain(ctx, batch.extent(), {channels, x, rstd, dy, dgain, accumulate, groups});
  }

  Batch batch;
  std::int64_t channels, groups;
  double gain_offset;
  Tensor x, gain, dy, addend, y, rstd, dx, dgain;
  Scalar statistics = Scalar::f64;
};

/// The header's formulas, operation by operation in T, for one token or for head `group` of a token.
template <class T>
struct Spelled {
  Spelled(const Problem& p, std::int64_t t, std::int64_t group)
      : channels(p.channels), statistics(p.statistics) {
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::int64_t at = group * channels + c;
      x.push_back(static_cast<T>(p.x.get(t, at)));
      gain.push_back(static_cast<T>(p.gain_offset) + static_cast<T>(p.gain.get(0, c)));
      dy.push_back(static_cast<T>(p.dy.get(t, at)));
      addend.push_back(static_cast<T>(p.addend.get(t, at)));
    }
  }
  static std::size_t at(std::int64_t c) { return static_cast<std::size_t>(c); }
  T rstd() const {
    const T squares =
        lane_sum<T>(channels, [&](std::int64_t c, T sum) { return std::fma(x[at(c)], x[at(c)], sum); });
    const T mean = kept(squares / static_cast<T>(channels));
    return kept(1 / std::sqrt(mean + static_cast<T>(kEps)));
  }
  T kept(T x) const { return static_cast<T>(round_to(static_cast<double>(x), statistics)); }
  T y(std::int64_t c, T r) const { return x[at(c)] * r * gain[at(c)]; }
  T mean(T r) const {
    const auto product = [&](std::int64_t c, T sum) {
      return std::fma(dy[at(c)] * gain[at(c)], x[at(c)] * r, sum);
    };
    return kept(lane_sum<T>(channels, product) / static_cast<T>(channels));
  }
  T dx(std::int64_t c, T r, T m) const { return r * std::fma(-(x[at(c)] * r), m, dy[at(c)] * gain[at(c)]); }

  std::int64_t channels;
  Scalar statistics;
  std::vector<T> x, gain, dy, addend;
};

class RmsNormCases : public ::testing::TestWithParam<Case> {};

template <class T>
void expect_spelled_rows(const Problem& p, bool with_addend) {
  Tensor y = p.y, dx = p.dx, rstd = p.rstd;
  for (std::int64_t row = 0; row < p.x.rows * p.groups; ++row) {
    const std::int64_t t = row / p.groups, group = row % p.groups;
    const Spelled<T> spelled(p, t, group);
    const T r = spelled.rstd(), m = spelled.mean(r);
    rstd.set(t, group, static_cast<double>(r));
    for (std::int64_t c = 0; c < p.channels; ++c) {
      y.set(t, group * p.channels + c, static_cast<double>(spelled.y(c, r)));
      const T value = spelled.dx(c, r, m);
      dx.set(t, group * p.channels + c,
             static_cast<double>(with_addend ? value + spelled.addend[spelled.at(c)] : value));
    }
  }
  EXPECT_EQ(p.y, y);
  EXPECT_EQ(p.rstd, rstd);
  EXPECT_EQ(p.dx, dx);
}

TEST_P(RmsNormCases, HasTheBitsOfTheStatedOrderEverywhere) {
  const Formats& formats = GetParam().formats;
  for (const bool with_addend : {false, true}) {
    std::optional<Problem> first;
    for (const Context& ctx : contexts()) {
      SCOPED_TRACE(describe(ctx));
      Problem p(GetParam(), Batch({5, 30}));
      p.forward(ctx);
      p.backward(ctx, with_addend);
      if (!first) {
        is_f64(formats.x) ? expect_spelled_rows<double>(p, with_addend)
                          : expect_spelled_rows<float>(p, with_addend);
        first = p;
      }
      EXPECT_EQ(p.y, first->y);
      EXPECT_EQ(p.rstd, first->rstd);
      EXPECT_EQ(p.dx, first->dx);
    }
  }
}

TEST(RmsNormStatistics, RoundToALowerFormat) {
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

/// One chain per block and group; the groups' chains are added in order.
template <class T>
T spelled_gain(const Problem& p, std::int64_t c, T start) {
  return block_sum<T>(p.batch, start, [&](std::int64_t begin, std::int64_t end, T leaf) {
    for (std::int64_t g = 0; g < p.groups; ++g) {
      T chain = 0;
      for (std::int64_t t = begin; t < end; ++t) {
        const std::int64_t at = g * p.channels + c;
        chain = std::fma(static_cast<T>(p.dy.get(t, at)),
                         static_cast<T>(p.x.get(t, at)) * static_cast<T>(p.rstd.get(t, g)), chain);
      }
      leaf += chain;
    }
    return leaf;
  });
}

template <class T>
void expect_spelled_gain(const Problem& p, const Tensor& before, bool accumulate) {
  Tensor dgain = p.dgain;
  for (std::int64_t c = 0; c < p.channels; ++c) {
    const T start = accumulate ? static_cast<T>(before.get(0, c)) : T{0};
    dgain.set(0, c, static_cast<double>(spelled_gain<T>(p, c, start)));
  }
  EXPECT_EQ(p.dgain, dgain);
}

class RmsNormGainCases : public ::testing::TestWithParam<Case> {};

TEST_P(RmsNormGainCases, HasTheBitsOfTheStatedOrderEverywhere) {
  const Formats& formats = GetParam().formats;
  for (const std::int64_t leaf : {1, 2}) {
    Problem p(GetParam(), Batch({300, 3, 17, 513}, leaf));
    p.forward({.simd = best_simd()});
    const Tensor before = p.dgain;
    for (const bool accumulate : {false, true}) {
      p.dgain = before;
      p.gain_gradient({.simd = best_simd()}, accumulate);
      is_f64(formats.x) ? expect_spelled_gain<double>(p, before, accumulate)
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

/// Bounds in units of the arithmetic's roundoff u, to first order with a margin for the second: a lane's
/// chain has n/16 + 1 roundings, the join 4. The mean of squares has only positive terms, so its relative
/// error is (n/16 + 7)u with the division and ε, that of rstd half of it plus 2, and y has 2 more. With an
/// offset the gain has 1 rounding of its own.
TEST_P(RmsNormCases, IsWithinTheErrorOfItsArithmetic) {
  const auto& [formats, channels, groups, gain_offset] = GetParam();
  Problem p(GetParam(), Batch({9}));
  const Context ctx{.simd = best_simd()};
  p.forward(ctx);
  p.backward(ctx, false);
  const std::vector<double> x = p.x.values(), gain = p.gain.values(), dy = p.dy.values();
  const std::int64_t rows = 9 * groups;
  std::vector<double> y(x.size()), rstd(static_cast<std::size_t>(rows)), dx(x.size());
  reference::rmsnorm(rows, channels, kEps, x.data(), gain.data(), y.data(), rstd.data(), gain_offset);
  reference::rmsnorm_backward(rows, channels, x.data(), gain.data(), rstd.data(), dy.data(), dx.data(),
                              gain_offset);
  // The reference's own sums have n roundings in f64.
  const double n = static_cast<double>(channels), u = unit_roundoff(formats.arithmetic());
  const double sum_error = 1.01 * (n / 16 + 7) * u + n * unit_roundoff(Scalar::f64);
  const double rstd_error = sum_error / 2 + 2.02 * u;
  const double gain_error = gain_offset == 0 ? 0 : 1.01 * u;
  const auto raised = [&](std::int64_t c) { return gain_offset + gain[static_cast<std::size_t>(c)]; };
  for (std::int64_t row = 0; row < rows; ++row) {
    const double r = rstd[static_cast<std::size_t>(row)];
    double products = 0;
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::size_t i = static_cast<std::size_t>(row * channels + c);
      products += std::abs(dy[i] * raised(c) * x[i] * r);
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::size_t i = static_cast<std::size_t>(row * channels + c);
      const std::int64_t t = row / groups, at = row % groups * channels + c;
      const double y_error = std::abs(y[i]) * (rstd_error + 2.02 * u + gain_error);
      EXPECT_NEAR(p.y.get(t, at), y[i], y_error + rounding_error(formats.y, std::abs(y[i]) + y_error));
      // For dx: g has 1 rounding; x̂ has 1 and rstd's error, twice with the mean's; the product's sum as
      // above; and 3 join them.
      const double g = std::abs(dy[i] * raised(c)), pull = std::abs(x[i] * r) * products / n;
      const double dx_error = r * (g * (rstd_error + 3.03 * u + gain_error) +
                                   pull * (sum_error + 3 * rstd_error + 6.06 * u + gain_error));
      EXPECT_NEAR(p.dx.get(t, at), dx[i], dx_error + rounding_error(formats.x, std::abs(dx[i]) + dx_error));
    }
  }
}

constexpr Formats all_of(Scalar s) {
  return {s, s, s};
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const Formats& f = info.param.formats;
  return std::string(name(f.x)) + "_" + std::string(name(f.gain)) + "_" + std::string(name(f.y)) + "_" +
         std::to_string(info.param.channels) + (info.param.gain_offset == 0 ? "" : "_offset") +
         (info.param.groups == 1 ? "" : "_in_" + std::to_string(info.param.groups));
}

INSTANTIATE_TEST_SUITE_P(
    All, RmsNormCases,
    ::testing::Values(
        Case{all_of(Scalar::f64), 50}, Case{all_of(Scalar::f64), 2100}, Case{all_of(Scalar::f32), 1},
        Case{all_of(Scalar::f32), 16}, Case{all_of(Scalar::f32), 77}, Case{all_of(Scalar::f32), 768},
        Case{all_of(Scalar::f32), 4133}, Case{all_of(Scalar::bf16), 64}, Case{all_of(Scalar::bf16), 2111},
        Case{all_of(Scalar::f16), 50}, Case{all_of(Scalar::tf32), 50}, Case{all_of(Scalar::e5m2), 50},
        Case{all_of(Scalar::e4m3), 50}, Case{{Scalar::f32, Scalar::f32, Scalar::bf16}, 256},
        Case{{Scalar::bf16, Scalar::f32, Scalar::f16}, 96}, Case{all_of(Scalar::f64), 20, 3, 1},
        Case{all_of(Scalar::f32), 2100, 1, 1}, Case{all_of(Scalar::f32), 77, 5},
        Case{all_of(Scalar::bf16), 64, 4, 1}, Case{{Scalar::bf16, Scalar::f32, Scalar::bf16}, 2050, 2, 1}),
    case_name);

INSTANTIATE_TEST_SUITE_P(All, RmsNormGainCases,
                         ::testing::Values(Case{all_of(Scalar::f64), 21}, Case{all_of(Scalar::f32), 1},
                                           Case{all_of(Scalar::f32), 77}, Case{all_of(Scalar::bf16), 64},
                                           Case{all_of(Scalar::f16), 17}, Case{all_of(Scalar::tf32), 8},
                                           Case{all_of(Scalar::e5m2), 8}, Case{all_of(Scalar::e4m3), 8},
                                           Case{{Scalar::f32, Scalar::f32, Scalar::bf16}, 530},
                                           Case{all_of(Scalar::f64), 21, 3},
                                           Case{all_of(Scalar::f32), 160, 13},
                                           Case{all_of(Scalar::bf16), 64, 40}),
                         case_name);

TEST(RmsNorm, WorksInPlaceAndWithTheAddendInPlace) {
  const Batch batch({12});
  Problem apart({{Scalar::bf16, Scalar::f32, Scalar::bf16}, 2100}, batch);
  const Context ctx{.simd = best_simd(), .threads = 2};
  apart.forward(ctx);
  apart.backward(ctx, true);
  Tensor in_place = apart.x, rstd = apart.rstd, sum = apart.addend;
  rmsnorm(ctx, batch.extent().tokens, {2100, kEps, in_place, apart.gain, in_place, rstd});
  rmsnorm_backward(ctx, batch.extent().tokens, {2100, apart.x, apart.gain, apart.rstd, apart.dy, sum, sum});
  EXPECT_EQ(in_place.values(), apart.y.values());
  EXPECT_EQ(sum.values(), apart.dx.values());
}

TEST(RmsNorm, GainGradientDoesNotDependOnTheMicroBatchSplit) {
  const Batch whole({40, 300, 7, 260});
  Problem once({all_of(Scalar::f32), 48}, whole);
  const Context ctx{.simd = best_simd(), .threads = 2};
  once.forward(ctx);
  once.gain_gradient(ctx, false);
  Tensor split(Scalar::f32, 1, 48);
  for (std::size_t r = 0; r < 4; r += 2) {
    const std::int64_t begin = whole.rows[r].begin;
    const Batch part({whole.rows[r].length, whole.rows[r + 1].length});
    const auto from = [&](const Tensor& t) {
      return ConstMatrix{t.bytes.data() + t.at(begin, 0) * bytes_of(t.type), t.type, t.ld};
    };
    const ConstMatrix rstd{once.rstd.bytes.data() + static_cast<std::size_t>(begin) * sizeof(float),
                           Scalar::f32, 1};
    rmsnorm_gain(ctx, part.extent(), {48, from(once.x), rstd, from(once.dy), split, r > 0});
  }
  EXPECT_EQ(split, once.dgain);
}

/// Central differences of Σ dy ∘ y in double. For steps of 1e-5 and values of order 1, the truncation error
/// is about h² and the cancellation about 1e-16 · terms / h, both below 1e-8.
TEST(RmsNorm, ReferenceGradientIsTheDerivative) {
  constexpr std::int64_t kTokens = 3, kChannels = 11;
  std::mt19937 random(kSeed);
  std::vector<double> x = Tensor(Scalar::f64, kTokens, kChannels).fill_normal(random, 0.3).values();
  std::vector<double> gain = Tensor(Scalar::f64, 1, kChannels).fill_normal(random, 1).values();
  const std::vector<double> dy = Tensor(Scalar::f64, kTokens, kChannels).fill_normal(random).values();
  std::vector<double> y(x.size()), rstd(kTokens), dx(x.size()), dgain(gain.size());
  const auto loss = [&] {
    reference::rmsnorm(kTokens, kChannels, kEps, x.data(), gain.data(), y.data(), rstd.data());
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
  reference::rmsnorm_backward(kTokens, kChannels, x.data(), gain.data(), rstd.data(), dy.data(), dx.data());
  reference::rmsnorm_gain(kTokens, kChannels, x.data(), rstd.data(), dy.data(), dgain.data());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(dx[i], slope(x[i]), 1e-8) << "x " << i;
  for (std::size_t i = 0; i < gain.size(); ++i) EXPECT_NEAR(dgain[i], slope(gain[i]), 1e-8) << "gain " << i;
}

}  // namespace
}  // namespace mantissa::kernels::norm_test
