// Lists of steps.
#include "mantissa/setup/config/steps.h"

#include <gtest/gtest.h>

#include "mantissa/core/base/error.h"

namespace mantissa::config {
namespace {

TEST(Steps, AreNumbersAndRanges) {
  EXPECT_TRUE(parse_steps("").empty());
  EXPECT_EQ(parse_steps("7"), (std::vector<StepRange>{{7, 7}}));
  EXPECT_EQ(parse_steps(" 7, 9-12 ,3"), (std::vector<StepRange>{{7, 7}, {9, 12}, {3, 3}}));
  const std::vector<StepRange> some = parse_steps("7,9-12");
  for (const std::int64_t step : {7, 9, 10, 12}) EXPECT_TRUE(has_step(some, step));
  for (const std::int64_t step : {1, 6, 8, 13}) EXPECT_FALSE(has_step(some, step));
}

TEST(Steps, AreRefusedIfTheyAreNone) {
  for (const char* text : {"0", "x", "3-", "-3", "4-2", "1.5", "1-2-3", "99999999999999999999"})
    EXPECT_THROW(parse_steps(text), ConfigError) << text;
}

}  // namespace
}  // namespace mantissa::config
