// Attention has the same bits for all thread counts, instruction sets, batches around a segment, and with a
// cache. Every sum has the order that the header states.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/attention_case.h"
#include "mantissa/kernels/attention.h"
#include "mantissa/numeric/convert.h"
#include "mantissa/numeric/row_math.h"

namespace mantissa::kernels::attention_test {
namespace {

void expect_same(const Case& a, const Case& b) {
  EXPECT_TRUE(same_bits(a.out, b.out)) << "out";
  EXPECT_TRUE(same_bits(a.lse, b.lse)) << "lse";
  EXPECT_TRUE(same_bits(a.dq, b.dq)) << "dq";
  EXPECT_TRUE(same_bits(a.dk, b.dk)) << "dk";
  EXPECT_TRUE(same_bits(a.dv, b.dv)) << "dv";
}

std::vector<Simd> instruction_sets() {
  std::vector<Simd> sets;
  for (const Simd simd : kSimds) {
    if (is_supported(simd)) sets.push_back(simd);
  }
  return sets;
}

struct SameBits : testing::TestWithParam<std::tuple<Formats, Sizes>> {};

TEST_P(SameBits, OnEveryThreadCountAndInstructionSet) {
  const auto& [formats, sizes] = GetParam();
  Case once = Case::random(sizes, formats);
  once.forward();
  once.backward();
  for (const Simd simd : instruction_sets()) {
    for (const int threads : {1, 2, 5}) {
      SCOPED_TRACE(std::string(name(simd)) + ", " + std::to_string(threads) + " threads");
      Case again = Case::random(sizes, formats);
      again.forward({simd, threads});
      again.backward({simd, threads});
      expect_same(once, again);
    }
  }
}

TEST_P(SameBits, AloneAndAmongOtherSegments) {
  const auto& [formats, sizes] = GetParam();
  Case all = Case::random(sizes, formats);
  all.forward({best_simd(), 2});
  all.backward({best_simd(), 2});
  for (const Segment& s : all.segments) {
    Sizes one = sizes;
    one.lengths = {s.length};
    Case alone(one, formats), part(one, formats);
    for (const auto member : {&Case::q, &Case::k, &Case::v, &Case::dout}) {
      (alone.*member).copy_rows(0, all.*member, s.begin, s.length);
    }
    alone.forward();
    alone.backward();
    for (const auto member : {&Case::out, &Case::lse, &Case::dq, &Case::dk, &Case::dv}) {
      (part.*member).copy_rows(0, all.*member, s.begin, s.length);
    }
    expect_same(alone, part);
  }
}

const Sizes kBitSizes[] = {{4, 2, 64, {300, 1, 77}},
                           {3, 1, 34, {130, 600}},
                           {2, 2, 16, {1100, 5}},
                           {3, 1, 34, {130, 600}, 50},
                           {2, 2, 16, {1100, 5, 530}, 515, 3},
                           {4, 2, 64, {300, 1, 77}, 7, 2}};
const Formats kBitFormats[] = {
    all_of(Scalar::f64),
    all_of(Scalar::f32),
    all_of(Scalar::bf16),
    {Scalar::f32, Scalar::bf16, Scalar::f16, Scalar::bf16, Scalar::f32, Scalar::f16}};
INSTANTIATE_TEST_SUITE_P(Attention, SameBits,
                         testing::Combine(testing::ValuesIn(kBitFormats), testing::ValuesIn(kBitSizes)),
                         name_of);

/// Feeds the tokens of one sequence through a cache in pieces of the given lengths, with a second sequence in
/// another slot. `parts` above 1: all operands have this many parts.
void expect_cache_gives_the_same_bits(const Formats& formats, const Sizes& sizes,
                                      const std::vector<std::int64_t>& pieces, int parts = 1,
                                      Scalar softmax = Scalar::f64) {
  Case full = Case::random(sizes, formats);
  if (parts > 1) full.factor = Factor(Scalar::bf16, parts);
  full.softmax = softmax;
  full.forward();
  const std::int64_t tokens = sizes.tokens(), capacity = tokens + 3, other = 40;
  std::mt19937 random(kSeed + 1);
  Tensor k(formats.k, 3 * capacity, full.k.columns), v(formats.v, 3 * capacity, full.v.columns);
  k.fill_normal(random);
  v.fill_normal(random);
  k.copy_rows(2 * capacity, full.k, 0, tokens);
  v.copy_rows(2 * capacity, full.v, 0, tokens);
  Tensor out(formats.out, tokens, full.out.columns), lse(full.lse.type, tokens, sizes.heads);
  std::int64_t done = 0;
  for (const std::int64_t n : pieces) {
    Tensor q(formats.q, n + 2, full.q.columns), o(formats.out, n + 2, full.out.columns),
        l(lse.type, n + 2, sizes.heads);
    q.fill_normal(random);
    q.copy_rows(2, full.q, done, n);
    const std::vector<Segment> segments = {{0, 2, other, 0}, {2, n, done, 2}};
    run_forward({}, segments,
                {sizes.shape(),
                 q.view(),
                 k.view(),
                 v.view(),
                 o.view(),
                 l.view(),
                 full.factor,
                 {3, capacity},
                 softmax});
    out.copy_rows(done, o, 2, n);
    lse.copy_rows(done, l, 2, n);
    done += n;
  }
  ASSERT_EQ(done, tokens);
  EXPECT_TRUE(same_bits(out, full.out)) << "out";
  EXPECT_TRUE(same_bits(lse, full.lse)) << "lse";
}

TEST(AttentionCache, TokenByTokenEqualsTheWholeSequence) {
  for (const Formats& formats : kBitFormats) {
    for (const Sizes& sizes : {Sizes{8, 1, 16, {130}}, Sizes{2, 2, 64, {533}}, Sizes{8, 1, 16, {130}, 9, 2},
                               Sizes{2, 2, 64, {533}, 20}, Sizes{3, 1, 34, {1100}, 512, 3}}) {
      expect_cache_gives_the_same_bits(
          formats, sizes, std::vector<std::int64_t>(static_cast<std::size_t>(sizes.tokens()), 1));
    }
  }
}

TEST(AttentionCache, PiecesOfAnyLengthEqualTheWholeSequence) {
  expect_cache_gives_the_same_bits(all_of(Scalar::f32), {4, 2, 32, {700}}, {1, 299, 211, 2, 180, 7});
  expect_cache_gives_the_same_bits(all_of(Scalar::bf16), {2, 1, 64, {1100}}, {511, 1, 513, 75});
  for (const std::int64_t window : {1, 40, 511, 600}) {
    SCOPED_TRACE("window " + std::to_string(window));
    const Sizes sizes{4, 2, 32, {1100}, window, 3};
    expect_cache_gives_the_same_bits(all_of(Scalar::f16), sizes, {511, 1, 513, 75});
    expect_cache_gives_the_same_bits(all_of(Scalar::f32), sizes, {1, 299, 211, 2, 580, 7});
    expect_cache_gives_the_same_bits(all_of(Scalar::f32), sizes, {530, 1, 1, 568}, 3);
    expect_cache_gives_the_same_bits(all_of(Scalar::bf16), sizes, {3, 600, 497}, 1, Scalar::bf16);
  }
}

// ---- Windows that mask nothing ----

TEST(AttentionWindow, AtLeastAsLongAsTheSegmentsEqualsTheWholePrefix) {
  for (const Formats& formats : kBitFormats) {
    Case whole = Case::random({3, 1, 34, {130, 600}}, formats);
    whole.forward({best_simd(), 2});
    whole.backward({best_simd(), 2});
    for (const std::int64_t window :
         {std::int64_t{600}, std::int64_t{601}, std::numeric_limits<std::int64_t>::max()}) {
      SCOPED_TRACE("window " + std::to_string(window));
      Case windowed = Case::random({3, 1, 34, {130, 600}, window}, formats);
      windowed.forward();
      windowed.backward();
      expect_same(whole, windowed);
    }
    Case narrower = Case::random({3, 1, 34, {130, 600}, 599}, formats);
    narrower.forward();
    EXPECT_FALSE(same_bits(narrower.out, whole.out));
  }
}

// ---- The order of the sums ----

/// Every sum of kernels/attention.h in f32, one operation at a time.
struct Spelled {
  const Case& c;
  std::int64_t d, heads, group, kv_heads, length;
  float scale, cap;
  std::vector<float> q, k, v, out, lse, dout;

  static std::vector<float> read(const Tensor& t) {
    std::vector<float> all(t.count());
    load_row(t.storage.data(), t.type, 0, all.size(), all.data());
    return all;
  }

  explicit Spelled(const Case& of)
      : c(of),
        d(of.sizes.head_dim),
        heads(of.sizes.heads),
        group(of.sizes.heads / of.sizes.kv_heads),
        kv_heads(of.sizes.kv_heads),
        length(of.sizes.tokens()),
        scale(static_cast<float>(of.sizes.shape().scale)),
        cap(static_cast<float>(of.sizes.soft_cap)),
        q(read(of.q)),
        k(read(of.k)),
        v(read(of.v)),
        out(read(of.out)),
        lse(read(of.lse)),
        dout(read(of.dout)) {}

  std::size_t q_at(std::int64_t t, std::int64_t h, std::int64_t i) const {
    return static_cast<std::size_t>((t * heads + h) * d + i);
  }
  std::size_t k_at(std::int64_t j, std::int64_t h, std::int64_t i) const {
    return static_cast<std::size_t>((j * kv_heads + h / group) * d + i);
  }

  /// a[t, h] · b[j, h's key head], one chain.
  float product(const std::vector<float>& a, std::int64_t t, std::int64_t h, const std::vector<float>& b,
                std::int64_t j) const {
    float sum = 0;
    for (std::int64_t i = 0; i < d; ++i) sum = std::fma(a[q_at(t, h, i)], b[k_at(j, h, i)], sum);
    return sum;
  }

  static float exp_of(float x) {
    map_row(MathFunction::exp, &x, 1, &x);
    return x;
  }

  /// The scores of t's keys [begin, end) and, with a soft cap, its factors on dS.
  struct Scores {
    std::vector<float> values, slopes;
  };
  Scores scores(std::int64_t t, std::int64_t h, std::int64_t begin, std::int64_t end) const {
    Scores s;
    for (std::int64_t j = begin; j < end; ++j) s.values.push_back(product(q, t, h, k, j) * scale);
    if (cap == 0) return s;
    for (float& x : s.values) x /= cap;
    map_row(MathFunction::tanh, s.values.data(), s.values.size(), s.values.data());
    for (const float tanh : s.values) s.slopes.push_back(std::fma(-tanh, tanh, 1.0F));
    for (float& x : s.values) x *= cap;
    return s;
  }

  static float by_tree(std::vector<float> lanes) {
    for (std::size_t half = 8; half > 0; half /= 2) {
      for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    return lanes[0];
  }

  void forward_of(std::int64_t t, std::int64_t h, float* result, float& log_sum) const {
    std::vector<float> sum(static_cast<std::size_t>(d)), lanes(16);
    float maximum = -std::numeric_limits<float>::infinity();
    const std::int64_t first = c.sizes.first_key(t);
    for (std::int64_t block = first / kKeyBlock * kKeyBlock; block <= t; block += kKeyBlock) {
      const std::int64_t begin = std::max(first, block), end = std::min(t + 1, block + kKeyBlock);
      std::vector<float> p = scores(t, h, begin, end).values;
      const float before = maximum;
      maximum = std::max(maximum, *std::max_element(p.begin(), p.end()));
      const float rescale = before == maximum ? 1 : exp_of(before - maximum);
      for (float& x : p) x -= maximum;
      map_row(MathFunction::exp, p.data(), p.size(), p.data());
      for (float& lane : lanes) lane *= rescale;
      for (std::int64_t j = begin; j < end; ++j)
        lanes[static_cast<std::size_t>(j % 16)] += p[static_cast<std::size_t>(j - begin)];
      round_row(p.data(), p.size(), c.formats.operand);
      for (std::int64_t i = 0; i < d; ++i) {
        float chain = 0;
        for (std::int64_t j = begin; j < end; ++j) {
          chain = std::fma(p[static_cast<std::size_t>(j - begin)], v[k_at(j, h, i)], chain);
        }
        const float rescaled = sum[static_cast<std::size_t>(i)] * rescale;
        sum[static_cast<std::size_t>(i)] = rescaled + chain;
      }
    }
    const float denominator = by_tree(lanes);
    for (std::int64_t i = 0; i < d; ++i) result[i] = sum[static_cast<std::size_t>(i)] / denominator;
    map_row(MathFunction::log, &denominator, 1, &log_sum);
    log_sum += maximum;
  }

  /// Rounded P and dS of one head, [t][j], zero if t does not attend to j.
  void probabilities(std::int64_t h, std::vector<std::vector<float>>& p,
                     std::vector<std::vector<float>>& ds) const {
    for (std::int64_t t = 0; t < length; ++t) {
      std::vector<float> lanes(16);
      for (std::int64_t i = 0; i < d; ++i) {
        float& lane = lanes[static_cast<std::size_t>(i % 16)];
        lane = std::fma(dout[q_at(t, h, i)], out[q_at(t, h, i)], lane);
      }
      const float delta = by_tree(lanes), log_sum = lse[static_cast<std::size_t>(t * heads + h)];
      const std::int64_t first = c.sizes.first_key(t);
      Scores seen = scores(t, h, first, t + 1);
      for (float& x : seen.values) x -= log_sum;
      map_row(MathFunction::exp, seen.values.data(), seen.values.size(), seen.values.data());
      std::vector<float> row(static_cast<std::size_t>(first)), gradient(row);
      for (std::int64_t j = first; j <= t; ++j) {
        const auto at = static_cast<std::size_t>(j - first);
        float unscaled = seen.values[at] * (product(dout, t, h, v, j) - delta);
        if (cap > 0) unscaled *= seen.slopes[at];
        row.push_back(seen.values[at]);
        gradient.push_back(unscaled * scale);
      }
      round_row(row.data(), row.size(), c.formats.operand);
      round_row(gradient.data(), gradient.size(), c.formats.operand);
      p.push_back(row);
      ds.push_back(gradient);
    }
  }

  /// Adds the chains of one head: key blocks into dq, query blocks into dk and dv.
  void backward_of(std::int64_t h, std::vector<float>& dq, std::vector<float>& dk,
                   std::vector<float>& dv) const {
    std::vector<std::vector<float>> p, ds;
    probabilities(h, p, ds);
    for (std::int64_t t = 0; t < length; ++t) {
      const std::int64_t first = c.sizes.first_key(t);
      for (std::int64_t block = first / kKeyBlock * kKeyBlock; block <= t; block += kKeyBlock) {
        for (std::int64_t i = 0; i < d; ++i) {
          float chain = 0;
          for (std::int64_t j = std::max(first, block); j < std::min(t + 1, block + kKeyBlock); ++j) {
            chain = std::fma(ds[static_cast<std::size_t>(t)][static_cast<std::size_t>(j)], k[k_at(j, h, i)],
                             chain);
          }
          dq[q_at(t, h, i)] += chain;
        }
      }
    }
    for (std::int64_t begin = 0; begin < length; begin += kQueryBlock) {
      const std::int64_t end = std::min(length, begin + kQueryBlock);
      for (std::int64_t j = 0; j < end; ++j) {
        for (std::int64_t i = 0; i < d; ++i) {
          float key_chain = 0, value_chain = 0;
          for (std::int64_t t = std::max(begin, j); t < c.sizes.end_query(j, end); ++t) {
            const auto r = static_cast<std::size_t>(t), column = static_cast<std::size_t>(j);
            key_chain = std::fma(ds[r][column], q[q_at(t, h, i)], key_chain);
            value_chain = std::fma(p[r][column], dout[q_at(t, h, i)], value_chain);
          }
          dk[k_at(j, h, i)] += key_chain;
          dv[k_at(j, h, i)] += value_chain;
        }
      }
    }
  }
};

TEST(AttentionOrder, FollowsTheHeader) {
  for (const Scalar operand : {Scalar::f32, Scalar::bf16}) {
    for (const Sizes& sizes : {Sizes{4, 2, 34, {140}}, Sizes{1, 1, 8, {1030}}, Sizes{4, 2, 34, {140}, 0, 2},
                               Sizes{1, 1, 8, {1030}, 300, 3}, Sizes{1, 1, 8, {1030}, 700}}) {
      Formats formats = all_of(Scalar::f32);
      formats.operand = operand;
      Case c = Case::random(sizes, formats);
      c.forward();
      c.backward();
      const Spelled spelled(c);
      std::vector<float> out(c.out.count()), lse(c.lse.count()), dq(c.dq.count()), dk(c.dk.count()),
          dv(c.dv.count());
      for (std::int64_t h = 0; h < sizes.heads; ++h) {
        for (std::int64_t t = 0; t < sizes.tokens(); ++t) {
          spelled.forward_of(t, h, &out[spelled.q_at(t, h, 0)],
                             lse[static_cast<std::size_t>(t * sizes.heads + h)]);
        }
        spelled.backward_of(h, dq, dk, dv);
      }
      EXPECT_EQ(Spelled::read(c.out), out);
      EXPECT_EQ(Spelled::read(c.lse), lse);
      EXPECT_EQ(Spelled::read(c.dq), dq);
      EXPECT_EQ(Spelled::read(c.dk), dk);
      EXPECT_EQ(Spelled::read(c.dv), dv);
    }
  }
}

}  // namespace
}  // namespace mantissa::kernels::attention_test
