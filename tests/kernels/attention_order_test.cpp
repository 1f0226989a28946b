// Every sum of attention has the order that kernels/attention.h states.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/attention_case.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/card_sum.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/row_math.h"
#include "mantissa/kernels/attention.h"

namespace mantissa::kernels::attention_test::attention_order_test {
namespace {

/// Numbers as operands: their first parts, then further parts.
using Parts = std::vector<std::vector<float>>;

Parts split(std::vector<float> values, const Factor& factor) {
  Parts parts;
  for (int part = 0; part < factor.parts; ++part) {
    parts.push_back(values);
    round_row(parts.back().data(), values.size(), factor.format);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] -= parts.back()[i];
  }
  return parts;
}

/// Every sum of kernels/attention.h in f32, one operation at a time.
struct Spelled {
  const Case& c;
  std::int64_t d, heads, group, kv_heads, length;
  float scale, cap;
  Parts q, k, v, dout;
  std::vector<float> out, lse, whole_dout;
  std::optional<CardSum> card;

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
        q(split(read(of.q), of.factor)),
        k(split(read(of.k), of.factor)),
        v(split(read(of.v), of.factor)),
        dout(split(read(of.dout), of.factor)),
        out(read(of.out)),
        lse(read(of.lse)),
        whole_dout(read(of.dout)),
        card(find_card_sum(of.formats.order, of.factor.format, of.factor.format)) {}

  std::size_t q_at(std::int64_t t, std::int64_t h, std::int64_t i) const {
    return static_cast<std::size_t>((t * heads + h) * d + i);
  }
  std::size_t k_at(std::int64_t j, std::int64_t h, std::int64_t i) const {
    return static_cast<std::size_t>((j * kv_heads + h / group) * d + i);
  }

  /// The sum of left(n) · right(n) over terms [begin, end), which are counted from `origin`. left and right
  /// take a part of the operand and n. The total of the sums of products of parts.
  template <class Left, class Right>
  float sum(std::int64_t origin, std::int64_t begin, std::int64_t end, Left left, Right right) const {
    std::vector<float> sums;
    for (int both = c.factor.parts - 1; both >= 0; --both) {
      for (int i = both; i >= 0; --i) {
        const auto of_left = static_cast<std::size_t>(i), of_right = static_cast<std::size_t>(both - i);
        sums.push_back(sum_of_part(
            origin, begin, end, [&](std::int64_t n) { return left(of_left, n); },
            [&](std::int64_t n) { return right(of_right, n); }));
      }
    }
    return std::accumulate(sums.begin() + 1, sums.end(), sums.front());
  }

  /// The sum for one part of each operand: one chain, blocks of 32 terms from the origin on, or the groups of
  /// a card from there on.
  template <class Left, class Right>
  float sum_of_part(std::int64_t origin, std::int64_t begin, std::int64_t end, Left left, Right right) const {
    float total = 0;
    if (card) {
      std::vector<float> lefts, rights;
      for (std::int64_t n = begin; n < end; ++n) {
        lefts.push_back(left(n));
        rights.push_back(right(n));
        // A group ends, or the terms do: absent terms are no zeros.
        if (n + 1 < end && (n + 1 - origin) % card->group != 0) continue;
        total = add_group(*card, lefts, rights, total);
        lefts.clear();
        rights.clear();
      }
      return total;
    }
    if (c.formats.order.order == SumOrder::chain) {
      for (std::int64_t n = begin; n < end; ++n) total = std::fma(left(n), right(n), total);
      return total;
    }
    for (std::int64_t block = origin; block < end; block += 32) {
      float even = 0, odd = 0;
      for (std::int64_t n = std::max(begin, block); n < std::min(end, block + 32); ++n) {
        float& chain = (n - origin) % 2 == 0 ? even : odd;
        chain = std::fma(left(n), right(n), chain);
      }
      total += even + odd;
    }
    return total;
  }

  /// b[j, h's key head] · a[t, h].
  float product(const Parts& a, std::int64_t t, std::int64_t h, const Parts& b, std::int64_t j) const {
    return sum(
        0, 0, d, [&](std::size_t part, std::int64_t i) { return b[part][k_at(j, h, i)]; },
        [&](std::size_t part, std::int64_t i) { return a[part][q_at(t, h, i)]; });
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
    std::vector<float> sums(static_cast<std::size_t>(d)), lanes(16);
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
      const Parts split_p = split(p, c.factor);
      for (std::int64_t i = 0; i < d; ++i) {
        float& total = sums[static_cast<std::size_t>(i)];
        const float of_block = sum(
            block, begin, end,
            [&](std::size_t part, std::int64_t j) {
              return split_p[part][static_cast<std::size_t>(j - begin)];
            },
            [&](std::size_t part, std::int64_t j) { return v[part][k_at(j, h, i)]; });
        const float rescaled = total * rescale;
        total = rescaled + of_block;
      }
    }
    const float denominator = by_tree(lanes);
    for (std::int64_t i = 0; i < d; ++i) result[i] = sums[static_cast<std::size_t>(i)] / denominator;
    map_row(MathFunction::log, &denominator, 1, &log_sum);
    log_sum += maximum;
  }

  /// P and dS of one head as operands, [t][part][j], zero if t does not attend to j.
  void probabilities(std::int64_t h, std::vector<Parts>& p, std::vector<Parts>& ds) const {
    for (std::int64_t t = 0; t < length; ++t) {
      std::vector<float> lanes(16);
      for (std::int64_t i = 0; i < d; ++i) {
        float& lane = lanes[static_cast<std::size_t>(i % 16)];
        lane = std::fma(whole_dout[q_at(t, h, i)], out[q_at(t, h, i)], lane);
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
      p.push_back(split(row, c.factor));
      ds.push_back(split(gradient, c.factor));
    }
  }

  /// Adds the sums of one head: key blocks into dq, query blocks into dk and dv.
  void backward_of(std::int64_t h, std::vector<float>& dq, std::vector<float>& dk,
                   std::vector<float>& dv) const {
    std::vector<Parts> p, ds;
    probabilities(h, p, ds);
    for (std::int64_t t = 0; t < length; ++t) {
      const std::int64_t first = c.sizes.first_key(t);
      for (std::int64_t block = first / kKeyBlock * kKeyBlock; block <= t; block += kKeyBlock) {
        for (std::int64_t i = 0; i < d; ++i) {
          dq[q_at(t, h, i)] += sum(
              block, std::max(first, block), std::min(t + 1, block + kKeyBlock),
              [&](std::size_t part, std::int64_t j) {
                return ds[static_cast<std::size_t>(t)][part][static_cast<std::size_t>(j)];
              },
              [&](std::size_t part, std::int64_t j) { return k[part][k_at(j, h, i)]; });
        }
      }
    }
    for (std::int64_t begin = 0; begin < length; begin += kQueryBlock) {
      const std::int64_t end = std::min(length, begin + kQueryBlock);
      for (std::int64_t j = 0; j < end; ++j) {
        const std::int64_t first = std::max(begin, j), last = c.sizes.end_query(j, end);
        const auto column = static_cast<std::size_t>(j);
        for (std::int64_t i = 0; i < d; ++i) {
          const auto in_column = [&](const std::vector<Parts>& of) {
            return [&](std::size_t part, std::int64_t t) {
              return of[static_cast<std::size_t>(t)][part][column];
            };
          };
          const auto in_query = [&](const Parts& of) {
            return [&](std::size_t part, std::int64_t t) { return of[part][q_at(t, h, i)]; };
          };
          dk[k_at(j, h, i)] += sum(begin, first, last, in_column(ds), in_query(q));
          dv[k_at(j, h, i)] += sum(begin, first, last, in_column(p), in_query(dout));
        }
      }
    }
  }
};

struct AttentionOrder : ::testing::TestWithParam<std::tuple<Accumulator, Factor, Sizes>> {};

/// Expects the results of both passes to be those of the stated sums, on every instruction set.
void expect_spelled(Case& c) {
  c.forward();
  c.backward();
  const Spelled spelled(c);
  std::vector<float> out(c.out.count()), lse(c.lse.count()), dq(c.dq.count()), dk(c.dk.count()),
      dv(c.dv.count());
  for (std::int64_t h = 0; h < c.sizes.heads; ++h) {
    for (std::int64_t t = 0; t < c.sizes.tokens(); ++t) {
      spelled.forward_of(t, h, &out[spelled.q_at(t, h, 0)],
                         lse[static_cast<std::size_t>(t * c.sizes.heads + h)]);
    }
    spelled.backward_of(h, dq, dk, dv);
  }
  for (const Simd simd : supported_sets()) {
    SCOPED_TRACE(name(simd));
    c.forward({simd, 1});
    c.backward({simd, 1});
    EXPECT_EQ(Spelled::read(c.out), out);
    EXPECT_EQ(Spelled::read(c.lse), lse);
    EXPECT_EQ(Spelled::read(c.dq), dq);
    EXPECT_EQ(Spelled::read(c.dk), dk);
    EXPECT_EQ(Spelled::read(c.dv), dv);
  }
}

TEST_P(AttentionOrder, FollowsTheHeader) {
  const auto& [order, operand, sizes] = GetParam();
  Case c = Case::random(sizes, all_of(Scalar::f32, order));
  c.factor = operand;
  expect_spelled(c);
}

std::string order_case_name(const ::testing::TestParamInfo<AttentionOrder::ParamType>& info) {
  const auto& [order, operand, sizes] = info.param;
  std::ostringstream text;
  std::string card(name(order.card));
  std::ranges::replace(card, '-', '_');
  text << (order.card != Card::none        ? card + '_'
           : order.order == SumOrder::tile ? "tile_"
                                           : "chain_")
       << name(operand.format);
  if (operand.parts > 1) text << 'x' << operand.parts;
  text << '_' << sizes;
  return text.str();
}

const auto kOrderSizes = ::testing::ValuesIn(mantissa::testing::cases<Sizes>({{4, 2, 34, {140}, 0, 2},
                                                                              {1, 1, 8, {1030}, 300, 3},
                                                                              {3, 1, 70, {77}},
                                                                              {4, 2, 34, {140}},
                                                                              {1, 1, 8, {1030}},
                                                                              {1, 1, 8, {1030}, 700},
                                                                              {2, 1, 64, {301}, 45, 2},
                                                                              {2, 1, 48, {530}},
                                                                              {1, 1, 80, {165}, 97}},
                                                                             3));

INSTANTIATE_TEST_SUITE_P(Every, AttentionOrder,
                         ::testing::Combine(::testing::Values(SumOrder::chain, SumOrder::tile),
                                            ::testing::Values(Scalar::f32, Scalar::bf16), kOrderSizes),
                         order_case_name);

// Sums of cards are spelled slowly: several blocks of keys and of queries, windows, caps and groups, once
// each.
const auto kCardSizes = ::testing::ValuesIn(mantissa::testing::cases<Sizes>(
    {{4, 2, 34, {140}, 0, 2}, {1, 1, 8, {530}, 300, 3}, {2, 1, 70, {77}}}, 1));

const auto kCards =
    ::testing::Values(Accumulator(Card::a100, Scalar::f32, 0), Accumulator(Card::h100, Scalar::f32, 0),
                      Accumulator(Card::mi250, Scalar::f32, 0), Accumulator(Card::mi300, Scalar::f32, 0));
INSTANTIATE_TEST_SUITE_P(Cards, AttentionOrder,
                         ::testing::Combine(kCards, ::testing::Values(Scalar::bf16), kCardSizes),
                         order_case_name);
INSTANTIATE_TEST_SUITE_P(SlowCards, AttentionOrder,
                         ::testing::Combine(kCards, ::testing::Values(Scalar::bf16), kOrderSizes),
                         order_case_name);

INSTANTIATE_TEST_SUITE_P(
    Parts, AttentionOrder,
    ::testing::Combine(::testing::Values(SumOrder::tile),
                       ::testing::Values(Factor(Scalar::bf16, 2), Factor(Scalar::bf16, 3)), kOrderSizes),
    order_case_name);

/// Units that take subnormal factors and sums as zero must not be used here.
/// Nor may the aligned integers of cards leave their range.
class AttentionTileOrder : public ::testing::TestWithParam<Accumulator> {};
TEST_P(AttentionTileOrder, KeepsSubnormalFactorsAndSums) {
  Formats formats = all_of(Scalar::f32, GetParam());
  formats.operand = Scalar::bf16;
  for (const double tiny : {0x1p-50, 0x1p-90, 0x1p-130}) {
    for (const bool of_keys : {true, false}) {
      SCOPED_TRACE(::testing::Message() << tiny << (of_keys ? " k and v" : " dO"));
      Case c = Case::random({2, 1, 16, {140}}, formats);
      for (Tensor* t : of_keys ? std::vector<Tensor*>{&c.k, &c.v} : std::vector<Tensor*>{&c.dout}) {
        std::vector<float> values = Spelled::read(*t);
        for (float& x : values) x *= static_cast<float>(tiny);
        round_row(values.data(), values.size(), Scalar::bf16);
        store_row(values.data(), values.size(), t->storage.data(), t->type, 0);
      }
      expect_spelled(c);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Each, AttentionTileOrder,
                         ::testing::Values(SumOrder::tile, Accumulator(Card::h100, Scalar::f32, 0),
                                           Accumulator(Card::mi300, Scalar::f32, 0)),
                         [](const auto& info) {
                           return std::string(info.index == 0 ? "Tile" : name(info.param.card));
                         });

TEST(AttentionInTileOrder, IsNotForF64) {
  Case c = Case::random({1, 1, 8, {3}}, all_of(Scalar::f64, SumOrder::tile));
  EXPECT_THROW(c.forward(), DtypeError);
  EXPECT_THROW(c.backward(), DtypeError);
}

}  // namespace
}  // namespace mantissa::kernels::attention_test::attention_order_test
