#include "mantissa/core/base/counted.h"

#include <gtest/gtest.h>

namespace mantissa {
namespace {

TEST(Counted, NounsAndVerbsAreSingularForOneOnly) {
  EXPECT_EQ(counted(0, "step"), "0 steps");
  EXPECT_EQ(counted(1, "step"), "1 step");
  EXPECT_EQ(counted(2U, "step"), "2 steps");
  EXPECT_EQ(counted(1, "value", "is", "are"), "1 value is");
  EXPECT_EQ(counted(2, "value", "is", "are"), "2 values are");
}

}  // namespace
}  // namespace mantissa
