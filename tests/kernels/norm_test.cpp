// RMSNorm: the bits that the header's order of operations gives, on every instruction set and thread count
// and in every format; errors within the bound of that arithmetic; gradients that are the derivative;
// PyTorch's values.
#include "mantissa/kernels/norm.h"

#include <gtest/gtest.h>

#include <optional>

#include "kernels/row_testing.h"
#include "mantissa/kernels/reference/norm.h"
#include "mantissa/numeric/round.h"

namespace mantissa::kernels {
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

/// Formats of x, gain and y; gradients have the same as the value.
struct Formats {
  Scalar x, gain, y;
  Scalar arithmetic() const { return is_f64(x) ? Scalar::f64 : Scalar::f32; }
};

struct Case {
  Formats formats;
  std::int64_t channels;
};

/// One problem and the results of the kernels.
struct Problem {
  Problem(const Formats& f, std::int64_t channels, const Batch& b)
      : batch(b),
        x(f.x, b.tokens, channels, 3),
        gain(f.gain, 1, channels),
        dy(f.y, b.tokens, channels, 1),
        addend(f.x, b.tokens, channels),
        y(f.y, b.tokens, channels, 5),
        rstd(f.arithmetic(), 1, b.tokens),
        dx(f.x, b.tokens, channels, 2),
        dgain(f.arithmetic(), 1, channels) {
    std::mt19937 random(kSeed);
    x.fill_normal(random, 0.5);
    gain.fill_normal(random, 1);
    dy.fill_normal(random);
    addend.fill_normal(random);
    dgain.fill_normal(random);
  }
  void forward(const Context& ctx) {
    rmsnorm(ctx, batch.extent(), {x.columns, kEps, x, gain, y, rstd, statistics});
  }
  void backward(const Context& ctx, bool with_addend) {
    rmsnorm_backward(
        ctx, batch.extent(),
        {x.columns, x, gain, rstd, dy, with_addend ? ConstMatrix(addend) : ConstMatrix{}, dx, statistics});
  }
  void gain_gradient(const Context& ctx, bool accumulate) {
    rmsnorm_gain(ctx, batch.extent(), {x.columns, x, rstd, dy, dgain, accumulate});
  }

  Batch batch;
  Tensor x, gain, dy, addend, y, rstd, dx, dgain;
  Scalar statistics = Scalar::f64;
};

/// The header's formulas, operation by operation in T, on one token.
template <class T>
struct Spelled {
  Spelled(const Problem& p, std::int64_t t) : channels(p.x.columns), statistics(p.statistics) {
    for (std::int64_t c = 0; c < channels; ++c) {
      x.push_back(static_cast<T>(p.x.get(t, c)));
      gain.push_back(static_cast<T>(p.gain.get(0, c)));
      dy.push_back(static_cast<T>(p.dy.get(t, c)));
      addend.push_back(static_cast<T>(p.addend.get(t, c)));
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
  for (std::int64_t t = 0; t < p.x.rows; ++t) {
    const Spelled<T> token(p, t);
    const T r = token.rstd(), m = token.mean(r);
    rstd.set(0, t, static_cast<double>(r));
    for (std::int64_t c = 0; c < p.x.columns; ++c) {
      y.set(t, c, static_cast<double>(token.y(c, r)));
      const T value = token.dx(c, r, m);
      dx.set(t, c, static_cast<double>(with_addend ? value + token.addend[token.at(c)] : value));
    }
  }
  EXPECT_EQ(p.y, y);
  EXPECT_EQ(p.rstd, rstd);
  EXPECT_EQ(p.dx, dx);
}

TEST_P(RmsNormCases, HasTheBitsOfTheStatedOrderEverywhere) {
  const auto& [formats, channels] = GetParam();
  for (const bool with_addend : {false, true}) {
    std::optional<Problem> first;
    for (const Context& ctx : contexts()) {
      SCOPED_TRACE(describe(ctx));
      Problem p(formats, channels, Batch({5, 30}));
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

TEST(RmsNormStatistics, OfALowerFormatAreRoundedToIt) {
  for (const Scalar s : {Scalar::tf32, Scalar::bf16, Scalar::f16, Scalar::e5m2, Scalar::e4m3}) {
    for (const Context& ctx : contexts()) {
      SCOPED_TRACE(::testing::Message() << name(s) << ' ' << describe(ctx));
      Problem p({Scalar::f32, Scalar::f32, Scalar::bf16}, 2051, Batch({5, 3}));
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
  for (std::int64_t c = 0; c < p.x.columns; ++c) {
    const T start = accumulate ? static_cast<T>(before.get(0, c)) : T{0};
    dgain.set(0, c, static_cast<double>(token_sum<T>(p.batch, start, [&](std::int64_t t, T sum) {
                return std::fma(static_cast<T>(p.dy.get(t, c)),
                                static_cast<T>(p.x.get(t, c)) * static_cast<T>(p.rstd.get(0, t)), sum);
              })));
  }
  EXPECT_EQ(p.dgain, dgain);
}

class RmsNormGainCases : public ::testing::TestWithParam<Case> {};

TEST_P(RmsNormGainCases, HasTheBitsOfTheStatedOrderEverywhere) {
  const auto& [formats, channels] = GetParam();
  for (const std::int64_t leaf : {1, 2}) {
    Problem p(formats, channels, Batch({300, 3, 17, 513}, leaf));
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

/// Bounds in units of the arithmetic's roundoff u, first order with room for the second: a lane's chain has
/// n/16 + 1 roundings, the join 4. The mean of squares has only positive terms, so its relative error is
/// (n/16 + 7)u with the division and ε, that of rstd half of it and 2 more; y has 2 more.
TEST_P(RmsNormCases, IsWithinTheErrorOfItsArithmetic) {
  const auto& [formats, channels] = GetParam();
  Problem p(formats, channels, Batch({9}));
  const Context ctx{.simd = best_simd()};
  p.forward(ctx);
  p.backward(ctx, false);
  const std::vector<double> x = p.x.values(), gain = p.gain.values(), dy = p.dy.values();
  std::vector<double> y(x.size()), rstd(9), dx(x.size());
  reference::rmsnorm(9, channels, kEps, x.data(), gain.data(), y.data(), rstd.data());
  reference::rmsnorm_backward(9, channels, x.data(), gain.data(), rstd.data(), dy.data(), dx.data());
  // The reference's own sums have n roundings of f64.
  const double n = static_cast<double>(channels), u = unit_roundoff(formats.arithmetic());
  const double sum_error = 1.01 * (n / 16 + 7) * u + n * unit_roundoff(Scalar::f64);
  const double rstd_error = sum_error / 2 + 2.02 * u;
  for (std::int64_t t = 0; t < 9; ++t) {
    const double r = rstd[static_cast<std::size_t>(t)];
    double products = 0;
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::size_t i = static_cast<std::size_t>(t * channels + c);
      products += std::abs(dy[i] * gain[static_cast<std::size_t>(c)] * x[i] * r);
    }
    for (std::int64_t c = 0; c < channels; ++c) {
      const std::size_t i = static_cast<std::size_t>(t * channels + c);
      const double y_error = std::abs(y[i]) * (rstd_error + 2.02 * u);
      EXPECT_NEAR(p.y.get(t, c), y[i], y_error + rounding_error(formats.y, std::abs(y[i]) + y_error));
      // Of dx: g has 1 rounding; x̂ has 1 and rstd's error, twice with the mean's; the product's sum as above;
      // 3 to join them.
      const double g = std::abs(dy[i] * gain[static_cast<std::size_t>(c)]),
                   pull = std::abs(x[i] * r) * products / n;
      const double dx_error =
          r * (g * (rstd_error + 3.03 * u) + pull * (sum_error + 3 * rstd_error + 6.06 * u));
      EXPECT_NEAR(p.dx.get(t, c), dx[i], dx_error + rounding_error(formats.x, std::abs(dx[i]) + dx_error));
    }
  }
}

constexpr Formats all_of(Scalar s) {
  return {s, s, s};
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  const Formats& f = info.param.formats;
  return std::string(name(f.x)) + "_" + std::string(name(f.gain)) + "_" + std::string(name(f.y)) + "_" +
         std::to_string(info.param.channels);
}

INSTANTIATE_TEST_SUITE_P(All, RmsNormCases,
                         ::testing::Values(Case{all_of(Scalar::f64), 50}, Case{all_of(Scalar::f64), 2100},
                                           Case{all_of(Scalar::f32), 1}, Case{all_of(Scalar::f32), 16},
                                           Case{all_of(Scalar::f32), 77}, Case{all_of(Scalar::f32), 768},
                                           Case{all_of(Scalar::f32), 4133}, Case{all_of(Scalar::bf16), 64},
                                           Case{all_of(Scalar::bf16), 2111}, Case{all_of(Scalar::f16), 50},
                                           Case{all_of(Scalar::tf32), 50}, Case{all_of(Scalar::e5m2), 50},
                                           Case{all_of(Scalar::e4m3), 50},
                                           Case{{Scalar::f32, Scalar::f32, Scalar::bf16}, 256},
                                           Case{{Scalar::bf16, Scalar::f32, Scalar::f16}, 96}),
                         case_name);

INSTANTIATE_TEST_SUITE_P(All, RmsNormGainCases,
                         ::testing::Values(Case{all_of(Scalar::f64), 21}, Case{all_of(Scalar::f32), 1},
                                           Case{all_of(Scalar::f32), 77}, Case{all_of(Scalar::bf16), 64},
                                           Case{all_of(Scalar::f16), 17}, Case{all_of(Scalar::tf32), 8},
                                           Case{all_of(Scalar::e5m2), 8}, Case{all_of(Scalar::e4m3), 8},
                                           Case{{Scalar::f32, Scalar::f32, Scalar::bf16}, 530}),
                         case_name);

TEST(RmsNorm, WorksInPlaceAndWithTheAddendInPlace) {
  const Batch batch({12});
  Problem apart({Scalar::bf16, Scalar::f32, Scalar::bf16}, 2100, batch);
  const Context ctx{.simd = best_simd(), .threads = 2};
  apart.forward(ctx);
  apart.backward(ctx, true);
  Tensor in_place = apart.x, rstd = apart.rstd, sum = apart.addend;
  rmsnorm(ctx, batch.extent(), {2100, kEps, in_place, apart.gain, in_place, rstd});
  rmsnorm_backward(ctx, batch.extent(), {2100, apart.x, apart.gain, apart.rstd, apart.dy, sum, sum});
  EXPECT_EQ(in_place.values(), apart.y.values());
  EXPECT_EQ(sum.values(), apart.dx.values());
}

TEST(RmsNorm, GainGradientDoesNotDependOnTheMicroBatchSplit) {
  const Batch whole({40, 300, 7, 260});
  Problem once(all_of(Scalar::f32), 48, whole);
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

/// Central differences of Σ dy ∘ y in double. With steps of 1e-5 and values of order 1 the truncation is
/// about h² and the cancellation about 1e-16 · terms / h: both below 1e-8.
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

// Made by tools/golden_rows.py: torch.nn.functional.rms_norm in f64 and its autograd.
constexpr double kGoldenX[] = {
    0x1.aed548f090ceep-1,  -0x1.837b9dddc1eaep-1, 0x1.50608c26d0a08p-1,  -0x1.1689ef5f34f52p-1,
    0x1.ae4044881c506p-2,  -0x1.26d02085f20f8p-2, 0x1.32f2d28f584cfp-3,  -0x1.220a29f6eb9f4p-7,
    -0x1.1e1f18ab0a2c0p-1, 0x1.a6026360c2f91p-1,  -0x1.12b9af7d765a5p+0, 0x1.4cf2871cec2e8p+0,
    -0x1.8081668131e26p+0, 0x1.ac5e20bb0d7edp+0,  -0x1.cfa7f7919140fp+0, 0x1.e9aa1b0e5ba30p+0,
    -0x1.7fff098a2eef0p+1, 0x1.7c64aa5dd46b4p+1,  -0x1.712d38131e620p+1, 0x1.5e922b805eda8p+1,
    -0x1.44f2d9c1b5dc2p+1, 0x1.24d28bc125c22p+1,  -0x1.fdabbb0fa2edap+0, 0x1.a77ee59e39819p+0};
constexpr double kGoldenGain[] = {0x1.4000000000000p+0, 0x1.cabbb351591bfp-1, 0x1.ac5567e4936d0p-1,
                                  0x1.3d736e12f045fp+0, 0x1.ed6041409cd07p-1, 0x1.94994ddbce538p-1,
                                  0x1.3601b408d6cbcp+0, 0x1.08c04d7616507p+0};
constexpr double kGoldenDy[] = {
    0x1.14a280fb5068cp-1,  -0x1.29fbebf632f94p-3, -0x1.84f5d069ca4f3p-1, -0x1.fffadd8d4acdap-1,
    -0x1.7f01658314e47p-1, -0x1.0611d3b0339acp-3, 0x1.1c37cf87361afp-1,  0x1.ee1006fc3fcfap-1,
    0x1.b00da046b65e3p-1,  0x1.fa377de108258p-1,  0x1.4b3902691a9edp-1,  -0x1.b30d6d8f65f78p-7,
    -0x1.5578e7d68218fp-1, -0x1.fc13650553ff2p-1, -0x1.a89b4c64cc027p-1, -0x1.084bcb9598883p-2,
    -0x1.10cf7d591f272p-1, 0x1.3be82f2505a52p-3,  0x1.87e459c20218cp-1,  0x1.ffeb764f88544p-1,
    0x1.7bfba287cf062p-1,  0x1.e8296e015e53cp-4,  -0x1.1ff9f38127868p-1, -0x1.ef3b7817589ecp-1};
constexpr double kGoldenY[] = {
    0x1.f73c9e555457dp+0,  -0x1.44694c2375addp+0, 0x1.06f61ba27128ep+0,  -0x1.42c1c611182c9p+0,
    0x1.836bcc4c29af8p-1,  -0x1.b365689ddfab2p-2, 0x1.5b56079cdfb59p-2,  -0x1.184a6a11868fcp-6,
    -0x1.fc82822a6c043p-2, 0x1.0ccb83245fe37p-1,  -0x1.46c6954a3cf06p-1, 0x1.25823db1c9f62p+0,
    -0x1.0766f88859752p+0, 0x1.e14b34e1e681fp-1,  -0x1.8f265955843a7p+0, 0x1.68009e0118bc5p+0,
    -0x1.786e41b3a53c9p+0, 0x1.0b48663fa2deap+0,  -0x1.e46c32f94db0dp-1, 0x1.54ed2681a9d9ep+0,
    -0x1.eb2289a556c5cp-1, 0x1.6af11e8486beep-1,  -0x1.e406b466cf3dap-1, 0x1.5779919c42641p-1};
constexpr double kGoldenDx[] = {
    0x1.815a72776026ep-1,  0x1.b79e2cd2c7aa2p-3,  -0x1.95ea9d39fc312p+0, -0x1.fcebb4f4f542dp+0,
    -0x1.9a03b580e7918p+0, -0x1.dfbf1393f0060p-7, 0x1.2a6154141a82ap+0,  0x1.ded3f6c306dc2p+0,
    0x1.865b73158e130p-1,  0x1.38f4ab6e85556p-1,  0x1.a2a5f6ef3b4d8p-2,  -0x1.4f137a060ceb6p-5,
    -0x1.b150da9846368p-2, -0x1.30a8c602c5e42p-1, -0x1.58b6de2b7b5aep-1, -0x1.dc91828af4a1bp-3,
    -0x1.b78a5078a227ap-3, 0x1.08caa97251b18p-7,  0x1.2ef0bd66f9cc4p-2,  0x1.c651e7b6182aap-2,
    0x1.477e4d0aaa46ep-2,  0x1.77d34131c3d60p-10, -0x1.e3b52ac84763cp-3, -0x1.abf0dcea49aa0p-2};
constexpr double kGoldenDgain[] = {0x1.24287d172415ap+0, 0x1.ee040ea82c76fp-1,  -0x1.255e90fabff17p+1,
                                   0x1.0a01d4e1764bfp+1, -0x1.3a66c957eef58p-1, -0x1.0132a52729d55p+0,
                                   0x1.a990729a99c1fp+0, -0x1.fd1bff994e256p-1};

/// Both sides are f64 sums of 8 terms of order 1, so they differ by a few tens of roundings.
TEST(RmsNorm, AgreesWithPyTorch) {
  const double tolerance = 64 * unit_roundoff(Scalar::f64);
  const Batch batch({3});
  const Context ctx{.simd = best_simd()};
  const Tensor x(Scalar::f64, 3, 8, kGoldenX), gain(Scalar::f64, 1, 8, kGoldenGain),
      dy(Scalar::f64, 3, 8, kGoldenDy);
  Tensor y(Scalar::f64, 3, 8), rstd(Scalar::f64, 1, 3), dx(Scalar::f64, 3, 8), dgain(Scalar::f64, 1, 8);
  rmsnorm(ctx, batch.extent(), {8, kEps, x, gain, y, rstd});
  rmsnorm_backward(ctx, batch.extent(), {8, x, gain, rstd, dy, {}, dx});
  rmsnorm_gain(ctx, batch.extent(), {8, x, rstd, dy, dgain, false});
  for (std::int64_t i = 0; i < 24; ++i) {
    EXPECT_NEAR(y.get(i / 8, i % 8), kGoldenY[i], tolerance);
    EXPECT_NEAR(dx.get(i / 8, i % 8), kGoldenDx[i], tolerance);
  }
  for (std::int64_t c = 0; c < 8; ++c) EXPECT_NEAR(dgain.get(0, c), kGoldenDgain[c], tolerance);
}

}  // namespace
}  // namespace mantissa::kernels
