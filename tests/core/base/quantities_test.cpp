// Quantities as text.
#include "mantissa/core/base/quantities.h"

#include <gtest/gtest.h>

namespace mantissa {
namespace {

TEST(Percent, HasTheDigitsThatMatter) {
  EXPECT_EQ(percent_text(0), "0 %");
  EXPECT_EQ(percent_text(4.3e-5), "0.004 %");
  EXPECT_EQ(percent_text(0.0043), "0.4 %");
  EXPECT_EQ(percent_text(0.043), "4.3 %");
  EXPECT_EQ(percent_text(0.43), "43 %");
  EXPECT_EQ(percent_text(0.97), "97 %");
  EXPECT_EQ(percent_text(0.997), "99.7 %");
  EXPECT_EQ(percent_text(0.9996), "99.96 %");
  EXPECT_EQ(percent_text(0.999996), "99.99 %");
  EXPECT_EQ(percent_text(1), "100 %");
}

TEST(Parameters, AreRounded) {
  EXPECT_EQ(parameters_text(86336), "86K");
  EXPECT_EQ(parameters_text(24.06e6), "24.1M");
  EXPECT_EQ(parameters_text(1.236e9), "1.24B");
}

}  // namespace
}  // namespace mantissa
