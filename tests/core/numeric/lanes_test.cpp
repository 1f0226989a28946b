#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "core/numeric/reference.h"
#include "core/numeric/row_functions.h"

namespace mantissa::lanes_test {
namespace {

using testing::bits;

/// The definition: element i adds to lane i mod 16; then the tree 8, 4, 2, 1 joins the lanes.
template <class T>
struct Lanes {
  std::array<T, 16> lane{};
  T total() {
    for (std::size_t width = 8; width > 0; width /= 2) {
      for (std::size_t i = 0; i < width; ++i) lane[i] += lane[i + width];
    }
    return lane[0];
  }
};

template <class T>
void expect_defined_sums() {
  std::mt19937 random(5);
  std::normal_distribution<T> normal;
  std::vector<T> p(300), q(300);
  for (T& x : p) x = std::ldexp(normal(random), static_cast<int>(random() % 20));
  for (T& x : q) x = normal(random);
  for (std::size_t n = 0; n <= p.size(); ++n) {
    Lanes<T> sum, product;
    for (std::size_t i = 0; i < n; ++i) {
      sum.lane[i % 16] += p[i];
      product.lane[i % 16] = std::fma(p[i], q[i], product.lane[i % 16]);
    }
    const T expected_sum = sum.total(), expected_product = product.total();
    for (const SimdTarget target : simd_targets()) {
      const testing::RowReductions got = testing::reduce_row(p.data(), q.data(), n, target);
      ASSERT_EQ(bits(got.sum), bits(static_cast<double>(expected_sum))) << n << " target " << target;
      ASSERT_EQ(bits(got.product), bits(static_cast<double>(expected_product))) << n << " target " << target;
    }
  }
}

TEST(LaneSum, IsTheFixedTreeOf16LanesInF32) {
  expect_defined_sums<float>();
}
TEST(LaneSum, IsTheFixedTreeOf16LanesInF64) {
  expect_defined_sums<double>();
}

template <class T>
void expect_maxima() {
  constexpr T kInf = std::numeric_limits<T>::infinity();
  std::mt19937 random(6);
  std::normal_distribution<T> normal(-3);
  for (const SimdTarget target : simd_targets()) {
    EXPECT_EQ(testing::reduce_row(static_cast<T*>(nullptr), static_cast<T*>(nullptr), 0, target).max, -kInf);
    for (std::size_t n = 1; n <= 100; ++n) {
      std::vector<T> p(n);
      for (T& x : p) x = normal(random);
      ASSERT_EQ(testing::reduce_row(p.data(), p.data(), n, target).max, *std::max_element(p.begin(), p.end()))
          << n;
      const std::size_t at = random() % n;
      p[at] = kInf;
      ASSERT_EQ(testing::reduce_row(p.data(), p.data(), n, target).max, kInf) << n;
      p[at] = -std::numeric_limits<T>::quiet_NaN();
      const double nan = testing::reduce_row(p.data(), p.data(), n, target).max;
      ASSERT_EQ(bits(nan), bits(std::numeric_limits<double>::quiet_NaN())) << n;
    }
  }
}

TEST(MaxRow, FindsTheLargestAndAnyNanInF32) {
  expect_maxima<float>();
}
TEST(MaxRow, FindsTheLargestAndAnyNanInF64) {
  expect_maxima<double>();
}

}  // namespace
}  // namespace mantissa::lanes_test
