// First fit by a tree over time compared with a plain search.
#include "mantissa/engine/plan/first_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace mantissa::plan::first_fit_test {
namespace {

struct Block {
  std::size_t offset = 0, bytes = 0;
  std::int64_t first = 0, last = 0;
};

/// Returns the lowest offset at which `next` overlaps no block with an overlapping lifetime.
std::size_t lowest(const std::vector<Block>& placed, const Block& next) {
  std::vector<std::size_t> candidates = {0};
  for (const Block& b : placed) candidates.push_back(b.offset + b.bytes);
  std::sort(candidates.begin(), candidates.end());
  for (const std::size_t at : candidates) {
    const bool free = std::none_of(placed.begin(), placed.end(), [&](const Block& b) {
      return b.first <= next.last && next.first <= b.last && b.offset < at + next.bytes &&
             at < b.offset + b.bytes;
    });
    if (free) return at;
  }
  return candidates.back();
}

TEST(FirstFit, TakesTheLowestOffsetThatIsFree) {
  for (const unsigned seed : {1U, 2U, 3U, 4U, 5U}) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const std::int64_t times = std::uniform_int_distribution<std::int64_t>(1, 70)(random);
    std::uniform_int_distribution<std::int64_t> time(0, times - 1);
    std::uniform_int_distribution<std::size_t> bytes(1, 9);
    FirstFit fit(times);
    std::vector<Block> placed;
    for (int i = 0; i < 400; ++i) {
      const auto [first, last] = std::minmax({time(random), time(random)});
      Block b{0, bytes(random), first, last};
      b.offset = lowest(placed, b);
      ASSERT_EQ(fit.place(b.bytes, b.first, b.last), b.offset) << "block " << i;
      placed.push_back(b);
    }
  }
}

TEST(FirstFit, SeparatesOverlappingLifetimesAndReusesFreeMemory) {
  FirstFit fit(3);
  EXPECT_EQ(fit.place(100, 0, 2), 0U);
  EXPECT_EQ(fit.place(100, 0, 0), 100U);
  EXPECT_EQ(fit.place(60, 1, 1), 100U);
  EXPECT_EQ(fit.place(40, 1, 2), 160U);
  EXPECT_EQ(fit.place(60, 2, 2), 100U);
}

}  // namespace
}  // namespace mantissa::plan::first_fit_test
