// Attention has the same bits for all thread counts, instruction sets, batches around a segment, and with a
// cache, in both orders of sums.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <limits>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/attention_case.h"
#include "kernels/tile_simds.h"
#include "mantissa/kernels/attention.h"

namespace mantissa::kernels::attention_test::attention_bits_test {
namespace {

void expect_same(const Case& a, const Case& b) {
  EXPECT_TRUE(same_bits(a.out, b.out)) << "out";
  EXPECT_TRUE(same_bits(a.lse, b.lse)) << "lse";
  EXPECT_TRUE(same_bits(a.dq, b.dq)) << "dq";
  EXPECT_TRUE(same_bits(a.dk, b.dk)) << "dk";
  EXPECT_TRUE(same_bits(a.dv, b.dv)) << "dv";
}

struct SameBits : ::testing::TestWithParam<std::tuple<Formats, Sizes>> {};

TEST_P(SameBits, OnEveryThreadCountAndInstructionSet) {
  const auto& [formats, sizes] = GetParam();
  Case once = Case::random(sizes, formats);
  once.forward();
  once.backward();
  for (const Simd simd : supported_sets()) {
    for (const int threads : mantissa::testing::thread_counts()) {
      SCOPED_TRACE(std::string(name(simd)) + ", " + std::to_string(threads) + " threads");
      Case again = Case::random(sizes, formats);
      again.forward({simd, threads});
      again.backward({simd, threads});
      expect_same(once, again);
    }
  }
}

struct SameBitsByTiles : SameBits {};

TEST_P(SameBitsByTiles, AsByOtherUnits) {
  const auto& [formats, sizes] = GetParam();
  Case once = Case::random(sizes, formats);
  once.forward();
  once.backward();
  for (const Simd simd : kernels::testing::tile_simds()) {
    SCOPED_TRACE(name(simd));
    Case again = Case::random(sizes, formats);
    again.forward({simd, 2});
    again.backward({simd, 2});
    expect_same(once, again);
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
    {Scalar::f32, Scalar::bf16, Scalar::f16, Scalar::bf16, Scalar::f32, Scalar::f16},
    all_of(Scalar::bf16, SumOrder::tile),
    {Scalar::f32, Scalar::bf16, Scalar::e4m3, Scalar::bf16, Scalar::f32, Scalar::bf16, SumOrder::tile}};
INSTANTIATE_TEST_SUITE_P(Attention, SameBits,
                         ::testing::Combine(::testing::ValuesIn(kBitFormats), ::testing::ValuesIn(kBitSizes)),
                         name_of);

// Units that multiply whole blocks, with sizes that no block divides, and tasks with as many rows as they
// need and with one less.
const Sizes kUnevenSizes[] = {{1, 1, 20, {63}},          {1, 1, 20, {64, 1}},       {2, 1, 48, {33, 31, 32}},
                              {1, 1, 80, {65, 513}},     {3, 1, 48, {22, 200}, 17}, {1, 1, 5, {97}, 33},
                              {4, 2, 20, {300}, 60, 3},  {6, 2, 33, {21, 47}},      {1, 1, 16, {1030}, 31},
                              {1, 1, 112, {700}, 513, 2}};
const auto kBf16Formats = mantissa::testing::cases<Formats>(
    {{Scalar::e4m3, Scalar::bf16, Scalar::e5m2, Scalar::bf16, Scalar::bf16, Scalar::bf16, SumOrder::tile},
     all_of(Scalar::bf16, SumOrder::tile),
     {Scalar::f32, Scalar::f32, Scalar::f32, Scalar::f32, Scalar::f32, Scalar::bf16, SumOrder::tile}},
    1);
INSTANTIATE_TEST_SUITE_P(OfUnevenAttention, SameBitsByTiles,
                         ::testing::Combine(::testing::ValuesIn(kBf16Formats),
                                            ::testing::ValuesIn(kUnevenSizes)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(OfUnevenAttention, SameBits,
                         ::testing::Combine(::testing::ValuesIn(kBf16Formats),
                                            ::testing::ValuesIn(kUnevenSizes)),
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
                 formats.order,
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
    for (const Sizes& sizes : mantissa::testing::cases<Sizes>({{8, 1, 16, {130}, 9, 2},
                                                               {8, 1, 16, {130}},
                                                               {2, 2, 64, {533}},
                                                               {2, 2, 64, {533}, 20},
                                                               {3, 1, 34, {1100}, 512, 3}},
                                                              2)) {
      expect_cache_gives_the_same_bits(
          formats, sizes, std::vector<std::int64_t>(static_cast<std::size_t>(sizes.tokens()), 1));
    }
  }
}

TEST(AttentionCache, PiecesOfAnyLengthEqualTheWholeSequence) {
  expect_cache_gives_the_same_bits(all_of(Scalar::f32), {4, 2, 32, {700}}, {1, 299, 211, 2, 180, 7});
  for (const SumOrder order : {SumOrder::chain, SumOrder::tile})
    expect_cache_gives_the_same_bits(all_of(Scalar::bf16, order), {2, 1, 64, {1100}}, {511, 1, 513, 75});
  for (const std::int64_t window : mantissa::testing::cases<std::int64_t>({600, 1, 40, 511}, 1)) {
    SCOPED_TRACE("window " + std::to_string(window));
    const Sizes sizes{4, 2, 32, {1100}, window, 3};
    expect_cache_gives_the_same_bits(all_of(Scalar::f16), sizes, {511, 1, 513, 75});
    expect_cache_gives_the_same_bits(all_of(Scalar::f32), sizes, {1, 299, 211, 2, 580, 7});
    expect_cache_gives_the_same_bits(all_of(Scalar::f32, SumOrder::tile), sizes, {1, 299, 211, 2, 580, 7});
    for (const SumOrder order : {SumOrder::chain, SumOrder::tile})
      expect_cache_gives_the_same_bits(all_of(Scalar::f32, order), sizes, {530, 1, 1, 568}, 3);
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
         mantissa::testing::cases<std::int64_t>({std::numeric_limits<std::int64_t>::max(), 600, 601}, 1)) {
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

}  // namespace
}  // namespace mantissa::kernels::attention_test::attention_bits_test
