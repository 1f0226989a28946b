#include "mantissa/core/base/suggest.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace mantissa {
namespace {

TEST(EditDistance, CountsSingleEdits) {
  EXPECT_EQ(edit_distance("", ""), 0u);
  EXPECT_EQ(edit_distance("bf16", "bf16"), 0u);
  EXPECT_EQ(edit_distance("", "bf16"), 4u);
  EXPECT_EQ(edit_distance("bf16", ""), 4u);
  EXPECT_EQ(edit_distance("compute", "compte"), 1u);    // a missing letter
  EXPECT_EQ(edit_distance("compute", "computee"), 1u);  // an extra letter
  EXPECT_EQ(edit_distance("compute", "compuTe"), 1u);   // a wrong letter
  EXPECT_EQ(edit_distance("compute", "comptue"), 1u);   // swapped neighbours
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
}

TEST(EditDistance, IsSymmetric) {
  const std::vector<std::string> words = {"",       "a",     "ab",        "ba",        "params",
                                          "parmas", "grads", "optimizer", "bf16-mixed"};
  for (const std::string& a : words) {
    for (const std::string& b : words) EXPECT_EQ(edit_distance(a, b), edit_distance(b, a)) << a << " " << b;
  }
}

TEST(Nearest, FindsTheIntendedWord) {
  const std::vector<std::string> words = {"params", "compute", "accumulate", "residual", "output", "grads"};
  EXPECT_EQ(nearest("comptue", words), "compute");
  EXPECT_EQ(nearest("acumulate", words), "accumulate");
  EXPECT_EQ(nearest("grad", words), "grads");
}

TEST(Nearest, ReturnsNullWhenNothingIsNear) {
  const std::vector<std::string> words = {"params", "compute"};
  EXPECT_EQ(nearest("warmup", words), std::nullopt);
  EXPECT_EQ(nearest("xyz", {}), std::nullopt);
}

TEST(Nearest, PrefersTheFirstOfEqualCandidates) {
  const std::vector<std::string> words = {"bf16", "af16"};
  EXPECT_EQ(nearest("cf16", words), "bf16");
}

}  // namespace
}  // namespace mantissa
