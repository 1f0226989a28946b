// Dropout: every element is dropped or multiplied by the factor as the random bits of its position say, for
// every format, thread count and instruction set; and so is every probability of attention.
#include "mantissa/kernels/dropout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/attention_case.h"
#include "kernels/row_testing.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/philox.h"

namespace mantissa::kernels::dropout_test {
namespace {

constexpr std::uint64_t kName = 0x1234567890ABCDEF, kSeed = 99;

bool is_dropped(const RandomStream& stream, std::uint64_t index, double rate) {
  return stream.bits(index) < rate * 4294967296.0;
}

// ---- Elements ----

constexpr std::int64_t kWidth = 1037;  // more than a piece, and not a whole number of vectors

/// Three sequences, the second of which continues at position 40.
struct Problem {
  explicit Problem(Scalar type) : batch({5, 3, 70}), from(type, batch.tokens, kWidth) {
    for (std::size_t i = 0; i < 3; ++i) batch.segments[i].sequence = 17 * i + 2;
    batch.segments[1].position = 40;
    std::mt19937 random(testing::kSeed);
    from.fill_normal(random, 10);
  }
  testing::Tensor run(const Context& ctx, Scalar type, double rate) const {
    testing::Tensor to(type, batch.tokens, kWidth);
    Extent extent = batch.extent();
    extent.seed = kSeed;
    dropout(ctx, extent, kWidth, from, to, {rate, kName, kSeed});
    return to;
  }
  testing::Batch batch;
  testing::Tensor from;
};

TEST(Dropout, IsItsFormulaAtEveryPosition) {
  for (const Scalar type : {Scalar::f64, Scalar::f32, Scalar::bf16, Scalar::f16}) {
    for (const double rate : {0.1, 0.5, 0.9}) {
      SCOPED_TRACE(::testing::Message() << name(type) << ' ' << rate);
      const Problem p(type);
      const testing::Tensor got = p.run({.simd = best_simd()}, type, rate);
      std::int64_t dropped = 0, count = 0;
      for (const Segment& s : p.batch.segments) {
        const RandomStream stream(kSeed, RandomUse::dropout, kName, s.sequence);
        for (std::int64_t t = 0; t < s.length; ++t) {
          for (std::int64_t c = 0; c < kWidth; ++c, ++count) {
            const double x = p.from.get(s.begin + t, c);
            const bool drop =
                is_dropped(stream, static_cast<std::uint64_t>((s.position + t) * kWidth + c), rate);
            dropped += drop ? 1 : 0;
            double want = 0;
            if (!drop) {
              want = type == Scalar::f64 ? x * (1 / (1 - rate))
                                         : static_cast<float>(x) * static_cast<float>(1 / (1 - rate));
              round_row(&want, 1, type);
            }
            ASSERT_EQ(got.get(s.begin + t, c), want) << s.begin + t << ' ' << c;
          }
        }
      }
      const double n = static_cast<double>(count);
      EXPECT_NEAR(static_cast<double>(dropped), rate * n, 5 * std::sqrt(n * rate * (1 - rate)));
    }
  }
}

TEST(Dropout, HasTheSameBitsOnEveryMachineAndInEveryBatch) {
  const Problem p(Scalar::bf16);
  const testing::Tensor want = p.run({.simd = best_simd()}, Scalar::bf16, 0.3);
  for (const Context& ctx : testing::contexts()) {
    const testing::Tensor got = p.run(ctx, Scalar::bf16, 0.3);
    for (std::int64_t t = 0; t < p.batch.tokens; ++t) {
      for (std::int64_t c = 0; c < kWidth; ++c)
        ASSERT_EQ(got.get(t, c), want.get(t, c)) << testing::describe(ctx) << ' ' << t << ' ' << c;
    }
  }
}

// ---- Probabilities of attention ----

using attention_test::all_of;
using attention_test::Case;
using attention_test::Formats;
using attention_test::Machine;
using attention_test::Sizes;
using attention_test::Tensor;

constexpr double kRate = 0.3;

/// Attention with dropout, and its gradient, of a case with sequences of its own.
struct Dropped {
  Case c;
  Dropped(const Sizes& sizes, const Formats& formats) : c(Case::random(sizes, formats)) {
    for (std::size_t i = 0; i < c.segments.size(); ++i) c.segments[i].sequence = 5 * i + 3;
  }
  Dropped& run(const Machine& machine = {}, double rate = kRate) {
    const AttentionShape shape = c.sizes.shape();
    const Dropout how{rate, kName, kSeed};
    Attention a{shape,        c.q.view(),   c.k.view(), c.v.view(),
                c.out.view(), c.lse.view(), c.factor,   c.formats.order};
    a.dropout = how;
    attention_test::run_forward(machine, c.segments, a);
    AttentionBackward b{shape,         c.q.view(),  c.k.view(),  c.v.view(),  c.out.view(), c.lse.view(),
                        c.dout.view(), c.dq.view(), c.dk.view(), c.dv.view(), c.factor,     c.formats.order};
    b.dropout = how;
    attention_test::run_backward(machine, c.segments, b);
    return *this;
  }
};

/// The same by the formulas in double, one query at a time.
struct Expected {
  std::vector<double> out, dq, dk, dv;
  double largest = 1;

  explicit Expected(const Case& c)
      : out(c.out.count()), dq(c.dq.count()), dk(c.dk.count()), dv(c.dv.count()) {
    const std::vector<double> q = c.q.values(), k = c.k.values(), v = c.v.values(), dout = c.dout.values();
    const Sizes& s = c.sizes;
    const auto d = static_cast<std::size_t>(s.head_dim);
    const double scale = s.shape().scale;
    for (const Segment& segment : c.segments) {
      const RandomStream stream(kSeed, RandomUse::dropout, kName, segment.sequence);
      for (std::int64_t t = 0; t < segment.length; ++t) {
        for (std::int64_t h = 0; h < s.heads; ++h) {
          const auto at = static_cast<std::size_t>(((segment.begin + t) * s.heads + h) * s.head_dim);
          const auto key = [&](std::int64_t j) {
            return static_cast<std::size_t>(((segment.begin + j) * s.kv_heads + h / (s.heads / s.kv_heads)) *
                                            s.head_dim);
          };
          const auto dot = [&](const double* a, const double* b) {
            double sum = 0;
            for (std::size_t i = 0; i < d; ++i) sum += a[i] * b[i];
            return sum;
          };
          const std::int64_t first = s.first_key(t);
          std::vector<double> p;
          double total = 0, most = -1e300;
          for (std::int64_t j = first; j <= t; ++j) {
            p.push_back(scale * dot(&q[at], &k[key(j)]));
            most = std::max(most, p.back());
          }
          for (double& x : p) total += x = std::exp(x - most);
          std::vector<double> kept;
          for (std::int64_t j = first; j <= t; ++j) {
            const auto index =
                (static_cast<std::uint64_t>(t * s.heads + h) << 28) + static_cast<std::uint64_t>(j);
            kept.push_back(is_dropped(stream, index, kRate) ? 0 : 1 / (1 - kRate));
          }
          double delta = 0;
          for (std::size_t i = 0; i < p.size(); ++i) {
            p[i] /= total;
            const double* value = &v[key(first + static_cast<std::int64_t>(i))];
            for (std::size_t e = 0; e < d; ++e) out[at + e] += p[i] * kept[i] * value[e];
          }
          delta = dot(&dout[at], &out[at]);
          for (std::size_t i = 0; i < p.size(); ++i) {
            const std::size_t row = key(first + static_cast<std::int64_t>(i));
            const double ds = p[i] * (kept[i] * dot(&dout[at], &v[row]) - delta) * scale;
            for (std::size_t e = 0; e < d; ++e) {
              dv[row + e] += p[i] * kept[i] * dout[at + e];
              dq[at + e] += ds * k[row + e];
              dk[row + e] += ds * q[at + e];
            }
          }
        }
      }
    }
    for (const auto* all : {&out, &dq, &dk, &dv})
      for (const double x : *all) largest = std::max(largest, std::abs(x));
  }
};

double difference(const Tensor& got, const std::vector<double>& want) {
  const std::vector<double> values = got.values();
  double most = 0;
  for (std::size_t i = 0; i < want.size(); ++i) most = std::max(most, std::abs(values[i] - want[i]));
  return most;
}

TEST(AttentionDropout, IsItsFormulaAndItsGradient) {
  const std::vector<Sizes> all = {{2, 1, 24, {130, 1, 37}}, {4, 2, 40, {300}, 50}, {3, 3, 64, {17, 600}}};
  for (const Sizes& sizes : all) {
    for (const Scalar type : {Scalar::f64, Scalar::f32}) {
      SCOPED_TRACE(::testing::Message() << sizes << ' ' << name(type));
      Dropped d(sizes, all_of(type));
      d.run();
      const Expected want(d.c);
      // Every result is a sum of at most so many products, of which each has a few roundings.
      const double terms = static_cast<double>(*std::max_element(sizes.lengths.begin(), sizes.lengths.end()) *
                                               sizes.heads / sizes.kv_heads);
      const double unit = type == Scalar::f64 ? 0x1p-53 : 0x1p-24;
      const double bound = 4 * (terms + static_cast<double>(sizes.head_dim) + 16) * unit * want.largest;
      EXPECT_LE(difference(d.c.out, want.out), bound);
      EXPECT_LE(difference(d.c.dq, want.dq), bound);
      EXPECT_LE(difference(d.c.dk, want.dk), bound);
      EXPECT_LE(difference(d.c.dv, want.dv), bound);
    }
  }
}

TEST(AttentionDropout, HasTheSameBitsForThreadsSetsAndBatches) {
  Formats mixed = all_of(Scalar::bf16, SumOrder::tile), parts = all_of(Scalar::f32);
  mixed.gradient = Scalar::f32;
  for (const Formats& formats : {all_of(Scalar::f32), all_of(Scalar::f32, SumOrder::tile), mixed, parts}) {
    const Sizes sizes{4, 2, 64, {70, 200}};
    Dropped want(sizes, formats);
    want.run();
    const auto same = [&](const Dropped& got) {
      for (const auto member : {&Case::out, &Case::lse, &Case::dq, &Case::dk, &Case::dv})
        EXPECT_TRUE(attention_test::same_bits(want.c.*member, got.c.*member));
    };
    for (const Simd simd : attention_test::supported_sets()) {
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(::testing::Message() << formats << name(simd) << ' ' << threads);
        Dropped got(sizes, formats);
        same(got.run({simd, threads}));
      }
    }
    // The second sequence alone.
    Dropped alone({4, 2, 64, {200}}, formats);
    for (const auto member : {&Case::q, &Case::k, &Case::v, &Case::dout})
      (alone.c.*member).copy_rows(0, want.c.*member, 70, 200);
    alone.c.segments[0].sequence = want.c.segments[1].sequence;
    alone.run();
    for (const auto member : {&Case::out, &Case::dq, &Case::dk, &Case::dv}) {
      const Tensor &a = want.c.*member, &b = alone.c.*member;
      EXPECT_EQ(std::memcmp(a.row(70), b.row(0), 200 * a.row_bytes()), 0) << formats;
    }
  }
}

TEST(AttentionDropout, OfNothingChangesNoBit) {
  const Sizes sizes{2, 1, 32, {90}};
  Dropped with(sizes, all_of(Scalar::f32)), without(sizes, all_of(Scalar::f32));
  with.run({}, 0);
  without.c.forward();
  without.c.backward();
  for (const auto member : {&Case::out, &Case::lse, &Case::dq, &Case::dk, &Case::dv})
    EXPECT_TRUE(attention_test::same_bits(with.c.*member, without.c.*member));
}

}  // namespace
}  // namespace mantissa::kernels::dropout_test
