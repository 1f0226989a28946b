// Attention over spans of keys, one after the other: within the bounds of attention over all keys, with the
// same bits on every machine, and the bits of attention over all keys where the order of the sums is the
// same.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/attention_bounds.h"
#include "kernels/attention_case.h"
#include "kernels/reference/attention.h"
#include "kernels/tile_simds.h"
#include "mantissa/kernels/attention.h"

namespace mantissa::kernels::attention_test::attention_spans_test {
namespace {

struct Block {
  std::int64_t begin, length;
};

/// Cuts a sequence of `length` tokens at `cuts`, in ascending order.
std::vector<Block> blocks_of(std::int64_t length, const std::vector<std::int64_t>& cuts) {
  std::vector<Block> blocks;
  std::int64_t begin = 0;
  for (const std::int64_t cut : cuts) {
    if (cut > begin && cut < length) blocks.push_back({begin, cut - begin}), begin = cut;
  }
  blocks.push_back({begin, length - begin});
  return blocks;
}

ConstMatrix rows_from(const Tensor& t, std::int64_t row) {
  return {t.row(row), t.type, t.columns};
}

/// The blocks of one sequence attend to each other, as on ranks that have one each.
struct Spans {
  Case& c;
  std::vector<Block> blocks;
  Machine machine = {};

  KeySpan between(const Block& keys, const Block& queries) const {
    return {keys.length, queries.begin - keys.begin};
  }

  void forward() const {
    Tensor out(c.lse.type, c.out.rows, c.out.columns);
    for (const Block& queries : blocks) {
      for (const Block& keys : blocks) {
        if (keys.begin > queries.begin) break;
        Attention a{c.sizes.shape(), c.q.view(),  rows_from(c.k, keys.begin), rows_from(c.v, keys.begin),
                    out.view(),      c.lse.view()};
        a.operand = c.factor;
        a.accumulator = c.formats.order;
        a.span = between(keys, queries);
        a.merge = keys.begin > 0;
        run_forward(machine, {{queries.begin, queries.length}}, a);
      }
    }
    c.out.assign(out.values());
  }

  void backward() const {
    Tensor dq(c.lse.type, c.dq.rows, c.dq.columns), dk(c.lse.type, c.dk.rows, c.dk.columns),
        dv(c.lse.type, c.dv.rows, c.dv.columns);
    for (const Block& keys : blocks) {
      for (const Block& queries : blocks) {
        if (keys.begin > queries.begin) continue;
        Tensor dk_part(dk.type, keys.length, dk.columns), dv_part(dv.type, keys.length, dv.columns);
        AttentionBackward a;
        a.shape = c.sizes.shape();
        a.q = c.q.view();
        a.k = rows_from(c.k, keys.begin);
        a.v = rows_from(c.v, keys.begin);
        a.out = c.out.view();
        a.lse = c.lse.view();
        a.dout = c.dout.view();
        a.dq = dq.view();
        a.dk = dk_part.view();
        a.dv = dv_part.view();
        a.operand = c.factor;
        a.accumulator = c.formats.order;
        a.span = between(keys, queries);
        a.add_dq = keys.begin > 0;
        run_backward(machine, {{queries.begin, queries.length}}, a);
        add(dk, keys.begin, dk_part);
        add(dv, keys.begin, dv_part);
      }
    }
    c.dq.assign(dq.values());
    c.dk.assign(dk.values());
    c.dv.assign(dv.values());
  }

 private:
  /// The sum of two f32 is exact in double before it rounds; f64 rounds once.
  static void add(Tensor& to, std::int64_t row, const Tensor& part) {
    const auto first = static_cast<std::size_t>(row * to.columns);
    for (std::size_t i = 0; i < part.count(); ++i) to.set(first + i, to.get(first + i) + part.get(i));
  }
};

struct Cut {
  Sizes sizes;  // of one sequence
  std::vector<std::int64_t> at;
};

std::ostream& operator<<(std::ostream& to, const Cut& c) {
  to << c.sizes << "_at";
  for (const std::int64_t at : c.at) to << '_' << at;
  return to;
}

std::string name_of_cut(const ::testing::TestParamInfo<std::tuple<Formats, Cut>>& info) {
  std::ostringstream text;
  text << std::get<0>(info.param) << std::get<1>(info.param);
  return text.str();
}

struct SpansOf : ::testing::TestWithParam<std::tuple<Formats, Cut>> {};

TEST_P(SpansOf, KeysAreWithinTheDerivedBound) {
  const auto& [formats, cut] = GetParam();
  Case c = Case::random(cut.sizes, formats);
  const Spans spans{c, blocks_of(cut.sizes.tokens(), cut.at), {best_simd(), 2}};
  spans.forward();
  spans.backward();
  const Bounds bounds(c, static_cast<double>(spans.blocks.size()));
  const Extent extent = extent_of(c.segments);

  std::vector<double> out(c.out.count()), lse(c.lse.count()), out_bound, lse_bound;
  reference::attention(extent, cut.sizes.shape(), bounds.q.data(), bounds.k.data(), bounds.v.data(),
                       out.data(), lse.data());
  bounds.forward(out, lse, out_bound, lse_bound);
  expect_within("out", c.out, out, out_bound);
  expect_within("lse", c.lse, lse, lse_bound);

  std::vector<double> dq(c.dq.count()), dk(c.dk.count()), dv(c.dv.count());
  reference::attention_backward(extent, cut.sizes.shape(), bounds.q.data(), bounds.k.data(), bounds.v.data(),
                                bounds.out.data(), bounds.lse.data(), bounds.dout.data(), dq.data(),
                                dk.data(), dv.data());
  std::vector<double> dq_bound = dq, dk_bound = dk, dv_bound = dv;
  bounds.backward(dq_bound, dk_bound, dv_bound);
  expect_within("dq", c.dq, dq, dq_bound);
  expect_within("dk", c.dk, dk, dk_bound);
  expect_within("dv", c.dv, dv, dv_bound);
}

TEST_P(SpansOf, KeysHaveTheSameBitsOnEveryThreadCountAndInstructionSet) {
  const auto& [formats, cut] = GetParam();
  Case once = Case::random(cut.sizes, formats);
  const std::vector<Block> blocks = blocks_of(cut.sizes.tokens(), cut.at);
  Spans{once, blocks}.forward();
  Spans{once, blocks}.backward();
  std::vector<Simd> sets = supported_sets();
  if (formats.order == SumOrder::tile) {
    const std::vector<Simd> tiles = kernels::testing::tile_simds();
    sets.insert(sets.end(), tiles.begin(), tiles.end());
  }
  for (const Simd simd : sets) {
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(std::string(name(simd)) + ", " + std::to_string(threads) + " threads");
      Case again = Case::random(cut.sizes, formats);
      Spans{again, blocks, {simd, threads}}.forward();
      Spans{again, blocks, {simd, threads}}.backward();
      EXPECT_TRUE(same_bits(once.out, again.out)) << "out";
      EXPECT_TRUE(same_bits(once.lse, again.lse)) << "lse";
      EXPECT_TRUE(same_bits(once.dq, again.dq)) << "dq";
      EXPECT_TRUE(same_bits(once.dk, again.dk)) << "dk";
      EXPECT_TRUE(same_bits(once.dv, again.dv)) << "dv";
    }
  }
}

const Formats kSpanFormats[] = {
    all_of(Scalar::f64),
    all_of(Scalar::f32),
    all_of(Scalar::bf16),
    all_of(Scalar::bf16, SumOrder::tile),
    {Scalar::f32, Scalar::bf16, Scalar::e4m3, Scalar::bf16, Scalar::f16, Scalar::f32},
};
// Blocks that no tile divides, of one token, longer than a key block; windows that end within a span, before
// it, and after one key; a soft cap.
const Cut kCuts[] = {
    {{2, 1, 16, {60}}, {30}},
    {{4, 2, 34, {300}}, {1, 77, 200}},
    {{1, 1, 24, {1300}}, {600, 1250}},
    {{3, 1, 16, {290}, 50}, {70, 140, 230}},
    {{2, 2, 16, {700}, 530}, {100, 520, 640}},
    {{2, 1, 8, {90}, 1}, {45}},
    {{2, 1, 80, {150}, 0, 4}, {50, 100}},
};
INSTANTIATE_TEST_SUITE_P(Attention, SpansOf,
                         ::testing::Combine(::testing::ValuesIn(kSpanFormats), ::testing::ValuesIn(kCuts)),
                         name_of_cut);

struct InOneSpan : ::testing::TestWithParam<Formats> {};

TEST_P(InOneSpan, TheSegmentsOwnKeysHaveTheBitsOfNoSpan) {
  const Sizes sizes{4, 2, 34, {700}, 300};
  Case plain = Case::random(sizes, GetParam()), spanned = Case::random(sizes, GetParam());
  plain.forward({best_simd(), 2});
  plain.backward({best_simd(), 2});
  Spans{spanned, blocks_of(700, {}), {best_simd(), 2}}.forward();
  Spans{spanned, blocks_of(700, {}), {best_simd(), 2}}.backward();
  EXPECT_TRUE(same_bits(plain.out, spanned.out)) << "out";
  EXPECT_TRUE(same_bits(plain.lse, spanned.lse)) << "lse";
  EXPECT_TRUE(same_bits(plain.dq, spanned.dq)) << "dq";
  EXPECT_TRUE(same_bits(plain.dk, spanned.dk)) << "dk";
  EXPECT_TRUE(same_bits(plain.dv, spanned.dv)) << "dv";
}

/// Spans of whole key blocks continue the chain of dQ: its blocks are added one after the other.
TEST_P(InOneSpan, WholeKeyBlocksKeepTheBitsOfDQ) {
  const Sizes sizes{2, 1, 16, {3 * kKeyBlock}};
  Case plain = Case::random(sizes, GetParam());
  plain.forward({best_simd(), 2});
  plain.backward({best_simd(), 2});
  Case spanned = Case::random(sizes, GetParam());
  spanned.forward({best_simd(), 2});
  Spans{spanned, blocks_of(3 * kKeyBlock, {kKeyBlock, 2 * kKeyBlock}), {best_simd(), 2}}.backward();
  EXPECT_TRUE(same_bits(plain.dq, spanned.dq)) << "dq";
}

INSTANTIATE_TEST_SUITE_P(Attention, InOneSpan, ::testing::ValuesIn(kSpanFormats),
                         [](const ::testing::TestParamInfo<Formats>& info) {
                           std::ostringstream text;
                           text << info.param << "each";
                           return text.str();
                         });

}  // namespace
}  // namespace mantissa::kernels::attention_test::attention_spans_test
