// Sums of the gradients of shards: the tree compared with its recursive definition in every format, and the
// number of waiting sums.
#include "mantissa/engine/comm/shard_sum.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <mutex>
#include <random>
#include <tuple>

#include "engine/comm/run_ranks.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/engine/comm/streamed_sum.h"
#include "mantissa/kernels/update.h"

namespace mantissa::comm {
namespace {

using Values = std::vector<double>;

constexpr std::int64_t kCount = 5000;  // of the larger parameter: more than a tile, and not a multiple of one
const kernels::Context kContext{.simd = kernels::best_simd(), .threads = 2};

/// Memory for a gradient in `type`.
struct Held {
  Held(std::int64_t count, Scalar type) : bytes(static_cast<std::size_t>(count) * bytes_of(type)) {
    gradient = {{bytes.data(), type, count}, count, hash_name("weight " + std::to_string(count))};
  }
  void set(const Values& values) {
    kernels::cast(kContext, gradient.count, values.data(), Scalar::f64, bytes.data(), gradient.values.type);
  }
  Values get() const {
    Values values(static_cast<std::size_t>(gradient.count));
    kernels::cast(kContext, gradient.count, bytes.data(), gradient.values.type, values.data(), Scalar::f64);
    return values;
  }
  std::vector<std::byte> bytes;
  Gradient gradient;
};

struct Formats {
  Scalar gradient, reduce;
  Rounding rounding = Rounding::nearest;
};

constexpr std::uint64_t kSeed = 5;

/// Sums gradients[begin … end): those of the largest power of two less than their number, plus the rest. The
/// random bits are those of the parameter with this name and number of elements, in step `step`.
Values tree(const std::vector<Values>& gradients, std::size_t begin, std::size_t end, const Formats& f,
            std::int64_t step) {
  Values sum = gradients[begin];
  if (end - begin > 1) {
    const std::size_t middle = begin + std::bit_floor(end - begin - 1);
    sum = tree(gradients, begin, middle, f, step);
    const Values right = tree(gradients, middle, end, f, step);
    for (std::size_t i = 0; i < sum.size(); ++i) {
      sum[i] += right[i];
      if (f.reduce != Scalar::f64) sum[i] = static_cast<float>(sum[i]);
    }
  }
  const RandomStream stream =
      random_bits(kSeed, step, hash_name("weight " + std::to_string(sum.size())),
                  {static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end - begin)});
  for (std::size_t i = 0; i < sum.size(); ++i)
    sum[i] = decode(encode(sum[i], f.reduce, {f.rounding}, stream.bits(i)), f.reduce);
  return sum;
}

class ShardSums : public ::testing::TestWithParam<Formats> {};

TEST_P(ShardSums, EqualTheTreeOfTheirDefinition) {
  const Formats f = GetParam();
  const Scalar type = f.gradient;
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (std::int64_t shards = 2; shards <= 9; ++shards) {
    Held large(kCount, type), small(3, type);
    const std::vector<Gradient> gradients = {large.gradient, small.gradient};
    ShardSum sum(gradients, {0, shards}, shards, f.reduce, f.rounding, kSeed);
    for (int step = 0; step < 2; ++step) {
      sum.begin(step);
      std::vector<Values> large_shards, small_shards;
      for (std::int64_t shard = 0; shard < shards; ++shard) {
        for (Held* g : {&large, &small}) {
          Values values(static_cast<std::size_t>(g->gradient.count));
          // Keeps sums of e4m3 below its largest value: NaN does not compare equal.
          const int most = type == Scalar::e4m3 || f.reduce == Scalar::e4m3 ? 3 : 11;
          for (double& x : values)
            x = normal(random) * std::ldexp(1.0, most - static_cast<int>(random() % 24));
          g->set(values);
          (g == &large ? large_shards : small_shards).push_back(g->get());
        }
        sum.add(kContext, gradients, shard);
      }
      for (const auto& [g, of] : {std::pair(&large, &large_shards), std::pair(&small, &small_shards)}) {
        Values expected = tree(*of, 0, of->size(), f, step);
        for (double& x : expected) x = round_to(x, type);
        EXPECT_EQ(g->get(), expected) << shards << " shards, step " << step;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Formats, ShardSums,
    ::testing::Values(Formats{Scalar::f32, Scalar::f32}, Formats{Scalar::f32, Scalar::bf16},
                      Formats{Scalar::f32, Scalar::f16}, Formats{Scalar::f32, Scalar::tf32},
                      Formats{Scalar::f32, Scalar::e5m2}, Formats{Scalar::bf16, Scalar::f32},
                      Formats{Scalar::bf16, Scalar::bf16}, Formats{Scalar::f16, Scalar::bf16},
                      Formats{Scalar::tf32, Scalar::f32}, Formats{Scalar::e5m2, Scalar::f32},
                      Formats{Scalar::e4m3, Scalar::e4m3}, Formats{Scalar::f64, Scalar::f64},
                      Formats{Scalar::f32, Scalar::bf16, Rounding::stochastic},
                      Formats{Scalar::f32, Scalar::tf32, Rounding::stochastic},
                      Formats{Scalar::f32, Scalar::e4m3, Rounding::stochastic},
                      Formats{Scalar::bf16, Scalar::f16, Rounding::stochastic},
                      Formats{Scalar::f32, Scalar::bf16, Rounding::toward_zero}),
    [](const auto& i) {
      const Formats& f = i.param;
      return fmt::format("{}_in_{}{}", name(f.gradient), name(f.reduce),
                         f.rounding == Rounding::nearest      ? ""
                         : f.rounding == Rounding::stochastic ? "_stochastic"
                                                              : "_toward_zero");
    });

/// Gradients of `shards` shards for two parameters: more than a tile, and fewer elements than ranks.
std::vector<std::vector<Values>> random_shards(std::int64_t shards) {
  std::mt19937 random(11);
  std::normal_distribution<double> normal;
  std::vector<std::vector<Values>> all;
  for (std::int64_t shard = 0; shard < shards; ++shard) {
    for (Values& values : all.emplace_back(std::vector<Values>{Values(kCount), Values(3)})) {
      for (double& x : values) x = normal(random) * std::ldexp(1.0, 3 - static_cast<int>(random() % 24));
    }
  }
  return all;
}

/// Runs one rank: its shards, then the sums of all ranks. Returns the bytes of both gradients after two
/// steps.
std::vector<std::vector<std::byte>> sums_of_rank(Communicator& ranks,
                                                 const std::vector<std::vector<Values>>& shards, Formats f,
                                                 std::vector<ValueCounts>* counts = nullptr,
                                                 std::int64_t parts = 1, bool early = false) {
  const auto all = static_cast<std::int64_t>(shards.size());
  const OwnShards own = shards_of(ranks.rank(), ranks.size(), all, parts);
  Held large(kCount, f.gradient), small(3, f.gradient);
  const std::vector<Gradient> gradients = {large.gradient, small.gradient};
  ShardSum sum(gradients, own, all, f.reduce, f.rounding, kSeed);
  std::vector<ValueCounts> none, *used = counts != nullptr ? counts : &none;
  for (int step = 0; step < 2; ++step) {
    sum.begin(step);
    if (counts != nullptr) counts->assign(2, {});
    for (std::int64_t i = 0; i < own.count; ++i) {
      const std::int64_t shard = own.first + i * own.step;
      const std::vector<Values>& values = shards[static_cast<std::size_t>(shard)];
      large.set(values[0]), small.set(values[1]);
      if (early && i + 1 == own.count && !ranks.alone()) {
        sum.add_early(kContext, 1, gradients[1], *used);
        sum.start({.simd = kContext.simd}, ranks, *used);
        small.set(Values(3, 1e9));  // it may change then
      }
      sum.add(kContext, gradients, shard, *used);
    }
    sum.add_ranks({.simd = kContext.simd}, gradients, ranks, *used);
  }
  return {large.bytes, small.bytes};
}

TEST_P(ShardSums, HaveTheSameBitsOnAnyNumberOfRanks) {
  const Formats f = GetParam();
  for (const auto& [shards, numbers] :
       {std::pair<std::int64_t, std::vector<int>>{24, {2, 3, 4, 8, 12, 24}}, {14, {2, 7, 14}}, {5, {5}}}) {
    const std::vector<std::vector<Values>> values = random_shards(shards);
    Communicator alone;
    const std::vector<std::vector<std::byte>> expected = sums_of_rank(alone, values, f);
    for (const int number : numbers) {
      std::vector<std::vector<std::vector<std::byte>>> results(static_cast<std::size_t>(number));
      testing::run_ranks(number, [&](Communicator& ranks) {
        results[static_cast<std::size_t>(ranks.rank())] = sums_of_rank(ranks, values, f);
      });
      for (const auto& result : results)
        EXPECT_EQ(result, expected) << shards << " shards, " << number << " ranks";
    }
  }
}

/// The sums of one gradient are on their way while another is computed.
TEST_P(ShardSums, HaveTheSameBitsIfSomeLeaveEarly) {
  const Formats f = GetParam();
  const std::vector<std::vector<Values>> values = random_shards(12);
  Communicator alone;
  const std::vector<std::vector<std::byte>> expected = sums_of_rank(alone, values, f);
  for (const int number : {2, 3, 12}) {
    std::vector<std::vector<std::vector<std::byte>>> results(static_cast<std::size_t>(number));
    testing::run_ranks(number, [&](Communicator& ranks) {
      results[static_cast<std::size_t>(ranks.rank())] = sums_of_rank(ranks, values, f, nullptr, 1, true);
    });
    for (const auto& result : results) EXPECT_EQ(result, expected) << number << " ranks";
  }
}

/// Ranks that share rows have every second or third of the shards.
TEST_P(ShardSums, HaveTheSameBitsIfRanksTakeTurns) {
  const Formats f = GetParam();
  for (const auto& [shards, parts, number] :
       {std::tuple{24, 2, 2}, {24, 2, 4}, {24, 3, 3}, {24, 3, 12}, {10, 5, 10}, {14, 2, 2}}) {
    const std::vector<std::vector<Values>> values = random_shards(shards);
    Communicator alone;
    const std::vector<std::vector<std::byte>> expected = sums_of_rank(alone, values, f);
    std::vector<std::vector<std::vector<std::byte>>> results(static_cast<std::size_t>(number));
    testing::run_ranks(number, [&, parts = parts](Communicator& ranks) {
      results[static_cast<std::size_t>(ranks.rank())] = sums_of_rank(ranks, values, f, nullptr, parts);
    });
    for (const auto& result : results)
      EXPECT_EQ(result, expected) << shards << " shards, " << number << " ranks of " << parts << " parts";
  }
}

TEST(ShardTree, RanksThatShareRowsHaveAPartOfEachShard) {
  std::vector<std::int64_t> seen(24);
  for (int rank = 0; rank < 6; ++rank) {
    const OwnShards own = shards_of(rank, 6, 24, 3);
    EXPECT_EQ(own.count, 4);
    for (std::int64_t i = 0; i < own.count; ++i) {
      const std::int64_t shard = own.first + i * own.step;
      EXPECT_EQ(shard % 3, rank % 3);
      EXPECT_EQ(shard / 12, rank / 3) << "shards of a group follow each other";
      ++seen.at(static_cast<std::size_t>(shard));
    }
  }
  EXPECT_EQ(seen, std::vector<std::int64_t>(24, 1));
}

/// Runs one rank of a streamed sum, of which each parameter has an owner. Returns the sums that this one
/// owns.
std::vector<std::vector<std::byte>> streamed_on_rank(Communicator& ranks,
                                                     const std::vector<std::vector<Values>>& shards,
                                                     Formats f, std::vector<ValueCounts>* counts = nullptr) {
  const auto all = static_cast<std::int64_t>(shards.size());
  Held large(kCount, f.gradient), small(3, f.gradient);
  std::vector<std::byte> sent(8 * kCount), sent_small(8 * 3);
  const std::vector<int> owners = {ranks.size() - 1, 0};
  StreamedSum sum({large.gradient, small.gradient}, owners, ranks, all, f.reduce, f.rounding, kSeed);
  for (int step = 0; step < 2; ++step) {
    if (counts != nullptr) counts->assign(2, {});
    sum.begin(step, counts == nullptr ? std::span<ValueCounts>() : std::span(*counts));
    for (std::int64_t turn = 0; turn < all / ranks.size(); ++turn) {
      const std::vector<Values>& values =
          shards[static_cast<std::size_t>(turn * ranks.size() + ranks.rank())];
      large.set(values[0]), small.set(values[1]);
      sum.set_turn(turn);
      sum.add(kContext, 0, large.gradient.values, {sent.data(), sum_format(f.reduce), kCount});
      sum.add(kContext, 1, small.gradient.values, {sent_small.data(), sum_format(f.reduce), 3});
      sum.start(kContext);
      large.set(Values(kCount));  // its memory is free
      sum.await(0);
      sum.await(1);
    }
  }
  std::vector<std::vector<std::byte>> own(2);
  for (std::size_t p = 0; p < 2; ++p) {
    const Matrix values = sum.sum(p);
    EXPECT_EQ(values.data != nullptr, owners[p] == ranks.rank());
    if (values.data == nullptr) continue;
    const auto* bytes = static_cast<const std::byte*>(values.data);
    own[p].assign(bytes, bytes + (p == 0 ? kCount : 3) * static_cast<std::int64_t>(bytes_of(values.type)));
  }
  return own;
}

TEST_P(ShardSums, HaveTheSameBitsIfTheyAreStreamed) {
  const Formats f = GetParam();
  for (const auto& [shards, numbers] :
       {std::pair<std::int64_t, std::vector<int>>{24, {2, 3, 8, 24}}, {14, {2, 7}}, {5, {5}}}) {
    const std::vector<std::vector<Values>> values = random_shards(shards);
    Communicator alone;
    const std::vector<std::vector<std::byte>> expected = sums_of_rank(alone, values, f);
    for (const int number : numbers) {
      std::vector<std::vector<std::vector<std::byte>>> results(static_cast<std::size_t>(number));
      testing::run_ranks(number, [&](Communicator& ranks) {
        results[static_cast<std::size_t>(ranks.rank())] = streamed_on_rank(ranks, values, f);
      });
      EXPECT_EQ(results.back()[0], expected[0]) << shards << " shards, " << number << " ranks";
      EXPECT_EQ(results.front()[1], expected[1]) << shards << " shards, " << number << " ranks";
    }
  }
}

TEST(ShardSum, RanksCountEveryRoundingOnce) {
  const std::vector<std::vector<Values>> values = random_shards(24);
  for (const Rounding rounding : {Rounding::nearest, Rounding::stochastic}) {
    const Formats formats{Scalar::f32, Scalar::e5m2, rounding};
    Communicator alone;
    std::vector<ValueCounts> expected, merged(2);
    sums_of_rank(alone, values, formats, &expected);
    for (const bool streamed : {false, true}) {
      std::vector<std::vector<ValueCounts>> counts(4);
      testing::run_ranks(4, [&](Communicator& ranks) {
        std::vector<ValueCounts>* own = &counts[static_cast<std::size_t>(ranks.rank())];
        streamed ? streamed_on_rank(ranks, values, formats, own) : sums_of_rank(ranks, values, formats, own);
      });
      merged.assign(2, {});
      for (const std::vector<ValueCounts>& of_rank : counts) {
        for (std::size_t p = 0; p < 2; ++p) merged[p].merge(of_rank[p]);
      }
      for (std::size_t p = 0; p < 2; ++p) {
        EXPECT_EQ(merged[p].count, expected[p].count);
        EXPECT_EQ(merged[p].flushed, expected[p].flushed);
        EXPECT_EQ(merged[p].overflowed, expected[p].overflowed);
        EXPECT_GT(merged[p].count, 0U);
      }
      EXPECT_GT(merged[0].flushed, 0U);
    }
  }
}

/// Of n elements in `reduce`, a rank sends the others' parts of its sums, and its part of the result to each.
TEST(ShardSum, SendsTheBytesOfTheFormula) {
  constexpr int kRanks = 4;
  for (const std::int64_t shards : {4, 8}) {
    const std::vector<std::vector<Values>> values = random_shards(shards);
    std::uint64_t sent = 0;
    std::mutex mutex;
    testing::run_ranks(kRanks, [&](Communicator& ranks) {
      sums_of_rank(ranks, values, {Scalar::f32, Scalar::bf16});
      const std::lock_guard lock(mutex);
      sent += ranks.sent_bytes();
    });
    constexpr std::uint64_t kSteps = 2, kBytes = 2;
    EXPECT_EQ(sent, kSteps * kBytes * 2 * (kRanks - 1) * (kCount + 3));
    EXPECT_EQ(sent,
              kSteps * kRanks * static_cast<std::uint64_t>(sent_bytes(kCount + 3, kRanks, Scalar::bf16)));
  }
}

/// 0.1 lies between two numbers of e4m3. Rounded to nearest, every sum of 64 shards has the error of one
/// rounding; rounded stochastically, the mean over the elements has the error of a mean.
TEST(ShardSum, StochasticRoundingKeepsTheMean) {
  constexpr std::int64_t kShards = 64;
  const auto error = [&](Rounding rounding, double shard) {
    Held gradient(kCount, Scalar::f32);
    const std::vector<Gradient> gradients = {gradient.gradient};
    ShardSum sum(gradients, {0, kShards}, kShards, Scalar::e4m3, rounding, kSeed);
    sum.begin(1);
    for (std::int64_t i = 0; i < kShards; ++i) {
      gradient.set(Values(kCount, shard));
      sum.add(kContext, gradients, i);
    }
    double mean = 0;
    for (const double x : gradient.get()) mean += x / kCount;
    return mean / (shard * kShards) - 1;
  };
  for (const double shard : {0.1, 0x1p-13}) {  // half of the least number of e4m3 is 2^-10
    EXPECT_GT(std::abs(error(Rounding::nearest, shard)), 0.01) << shard;
    EXPECT_LT(error(Rounding::toward_zero, shard), -0.05) << shard;
  }
  // A sum has seven roundings on its way, each with at most half a unit, 1/16 of the value, as its standard
  // deviation; that of the mean of 5000 is below 7^½ / 16 / 5000^½ = 0.0024.
  EXPECT_LT(std::abs(error(Rounding::stochastic, 0.1)), 4 * 0.0024);
  // A shard becomes 2^-9 once in 16 times: of 64 · 5000 shards a mean of 1/16 ± 0.0004, relative to it 0.007.
  EXPECT_LT(std::abs(error(Rounding::stochastic, 0x1p-13)), 4 * 0.007);
}

TEST(ShardSum, RandomBitsOfStepsNamesAndNodesDiffer) {
  std::vector<std::uint32_t> words;
  for (const std::int64_t step : {1, 2}) {
    for (const char* name : {"a", "b"}) {
      for (std::int64_t shards = 2; shards <= 5; ++shards) {
        for (const ShardRange node : {ShardRange{0, 1}, ShardRange{1, 1}, ShardRange{0, shards}})
          words.push_back(random_bits(kSeed, step, hash_name(name), node).bits(0));
      }
    }
  }
  std::ranges::sort(words);
  const auto repeated = std::ranges::unique(words);
  words.erase(repeated.begin(), repeated.end());
  EXPECT_EQ(words.size(), 2U * 2U * (2U + 4U)) << "two leaves and four sums";
}

TEST(ShardSum, OneShardStaysUnchanged) {
  Held g(kCount, Scalar::f32);
  g.set(Values(kCount, 1.0 / 3));
  const std::vector<std::byte> before = g.bytes;
  const std::vector<Gradient> gradients = {g.gradient};
  ShardSum(gradients, {0, 1}, 1, Scalar::e5m2).add(kContext, gradients, 0);
  EXPECT_EQ(g.bytes, before);
  EXPECT_EQ(shard_sum_bytes(kCount, {0, 1}, 1, Scalar::f32), 0U);
}

TEST(ShardSum, AnInterruptedStepDoesNotAffectTheNext) {
  Held g(3, Scalar::f32);
  const std::vector<Gradient> gradients = {g.gradient};
  ShardSum sum(gradients, {0, 4}, 4, Scalar::f32);
  for (const int shards : {3, 4}) {
    for (std::int64_t shard = 0; shard < shards; ++shard) {
      g.set(Values(3, static_cast<double>(shard + 1)));
      sum.add(kContext, gradients, shard);
    }
  }
  EXPECT_EQ(g.get(), Values(3, 10.0));
}

TEST(ShardSum, WaitingSumsAreTheOnesOfABinaryCounter) {
  for (std::int64_t shards = 1; shards <= 64; ++shards) {
    int most = 0;
    for (std::uint64_t done = 1; done < static_cast<std::uint64_t>(shards); ++done)
      most = std::max(most, std::popcount(done));
    EXPECT_EQ(waiting_sums({0, shards}, shards), most) << shards;
  }
}

/// Half of the least e5m2 is 2^-17. Values and sums below it become zero, at every rounding of the tree.
TEST(ShardSum, CountsWhatItsRoundingsLose) {
  constexpr std::int64_t kShards = 4;
  Held gradient(kCount, Scalar::f32);
  const std::vector<Gradient> gradients = {gradient.gradient};
  ShardSum sum(gradients, {0, kShards}, kShards, Scalar::e5m2);
  std::vector<ValueCounts> counts(1);
  for (std::int64_t shard = 0; shard < kShards; ++shard) {
    Values values(kCount);
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = i % 4 == 0 ? 0x1p-18 : i % 4 == 1 ? 0x1p17 : 0.25;
    gradient.set(values);
    sum.add(kContext, gradients, shard, counts);
  }
  const std::uint64_t quarter = kCount / 4;
  // Each of the four gradients, and three sums of two of them; those of zeros lose nothing more.
  EXPECT_EQ(counts[0].count, 7U * kCount);
  EXPECT_EQ(counts[0].flushed, 4 * quarter);
  EXPECT_EQ(counts[0].overflowed, 4 * quarter) << "sums of infinities were not finite before";
  const Values result = gradient.get();
  EXPECT_EQ(result[0], 0);
  EXPECT_EQ(result[2], 1);
}

}  // namespace
}  // namespace mantissa::comm
