#include "mantissa/report/number_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace mantissa::report {
namespace {

TEST(NumberText, HasFewDigits) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(3.14159), "3.14");
  EXPECT_EQ(number_text(65504), "65\u202f504");
  EXPECT_EQ(number_text(1500), "1500");
  EXPECT_EQ(number_text(1234.5), "1235");
  EXPECT_EQ(number_text(-0.25), "−0.25");
  EXPECT_EQ(number_text(0.0078125), "0.00781");
  EXPECT_EQ(number_text(1.3e-5), "1.3e-5");
  EXPECT_EQ(number_text(9.99e-6), "1e-5");
  EXPECT_EQ(number_text(6e23), "6e23");
  EXPECT_EQ(number_text(5e-324), "4.9e-324");
}

TEST(NumberText, NamesValuesThatAreNotFinite) {
  EXPECT_EQ(number_text(std::nan("")), kNoNumber);
  EXPECT_EQ(number_text(std::numeric_limits<double>::infinity()), "∞");
  EXPECT_EQ(number_text(-std::numeric_limits<double>::infinity()), "−∞");
  EXPECT_EQ(share_text(std::nan("")), kNoNumber);
}

TEST(ShareText, OnlyAllIsAHundredPercentAndOnlyNothingIsZero) {
  EXPECT_EQ(share_text(1), "100\u202f%");
  EXPECT_EQ(share_text(0), "0\u202f%");
  EXPECT_EQ(share_text(0.97), "97\u202f%");
  EXPECT_EQ(share_text(0.013), "1.3\u202f%");
  EXPECT_EQ(share_text(0.00013), "0.013\u202f%");
  EXPECT_EQ(share_text(1.3e-7), "1.3e-7");
  EXPECT_EQ(share_text(0.9991), "99.9\u202f%");
  EXPECT_EQ(share_text(0.9996), "99.96\u202f%");
  EXPECT_EQ(share_text(0.999999), "> 99.99\u202f%");
  EXPECT_EQ(share_text(-0.45), "−45\u202f%");
}

TEST(PowerText, WritesPowersOfTwoAsSuch) {
  EXPECT_EQ(power_text(65536), "2^16");
  EXPECT_EQ(power_text(std::exp2(-14)), "2^-14");
  EXPECT_EQ(power_text(0.5), "0.5");
  EXPECT_EQ(power_text(16), "16");
  EXPECT_EQ(power_text(32), "2^5");
  EXPECT_EQ(power_text(1.0 / 32), "2^-5");
  EXPECT_EQ(power_text(65504), "65\u202f504");
}

TEST(CountText, GroupsDigitsFromFiveOn) {
  EXPECT_EQ(count_text(9999), "9999");
  EXPECT_EQ(count_text(10000), "10\u202f000");
  EXPECT_EQ(count_text(-1234567), "−1\u202f234\u202f567");
  EXPECT_EQ(count_text(std::numeric_limits<std::int64_t>::min()),
            "−9\u202f223\u202f372\u202f036\u202f854\u202f775\u202f808");
}

TEST(RaisedHtml, RaisesExponents) {
  EXPECT_EQ(raised_html("2^-14"), "2<sup>−14</sup>");
  EXPECT_EQ(raised_html("1.3e-5"), "1.3·10<sup>−5</sup>");
  EXPECT_EQ(raised_html("1e-6"), "10<sup>−6</sup>");
  EXPECT_EQ(raised_html("97\u202f%"), "97\u202f%");
}

}  // namespace
}  // namespace mantissa::report
