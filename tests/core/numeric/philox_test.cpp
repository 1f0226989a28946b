#include "mantissa/core/numeric/philox.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace mantissa::philox_test {
namespace {

TEST(Philox, MatchesTheTestVectorsOfRandom123) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(RandomStream, DependsOnEveryPartOfItsKey) {
  std::set<std::uint32_t> seen;
  for (const std::uint64_t seed : {std::uint64_t{1}, std::uint64_t{2}, std::uint64_t{1} << 32}) {
    for (const RandomUse use : {RandomUse::rounding, RandomUse::initial_weights}) {
      for (const char* parameter : {"model.embed_tokens.weight", "lm_head.weight"}) {
        for (const std::uint64_t step : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{1} << 40}) {
          const RandomStream stream(seed, use, hash_name(parameter), step);
          for (const std::uint64_t index :
               {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{4}, std::uint64_t{1} << 34}) {
            seen.insert(stream.bits(index));
          }
        }
      }
    }
  }
  EXPECT_EQ(seen.size(), 3u * 2 * 2 * 3 * 4);
}

TEST(RandomStream, BitsAreTheWordsOfItsBlocks) {
  const RandomStream stream(17, RandomUse::rounding, hash_name("w"), 3);
  for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(stream.bits(i), stream.block(i / 4)[i % 4]);
}

// Means of n independent samples lie within 6 standard errors of the expectation (2e-9 probability of failure
// each).
constexpr std::size_t kDraws = 1'000'000;
double six_errors(double variance) {
  return 6 * std::sqrt(variance / kDraws);
}

TEST(Uniform, HasTheMomentsOfTheUnitInterval) {
  const RandomStream stream(5, RandomUse::initial_weights, hash_name("u"), 0);
  double sum = 0, squares = 0;
  for (std::size_t i = 0; i < kDraws; ++i) {
    const double u = uniform(stream, i);
    ASSERT_TRUE(u >= 0 && u < 1) << u;
    sum += u;
    squares += u * u;
  }
  EXPECT_NEAR(sum / kDraws, 0.5, six_errors(1.0 / 12));
  EXPECT_NEAR(squares / kDraws, 1.0 / 3, six_errors(4.0 / 45));
}

}  // namespace
}  // namespace mantissa::philox_test
