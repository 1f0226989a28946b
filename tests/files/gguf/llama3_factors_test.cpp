// The scaling of RoPE that a file's factors came from.
#include "mantissa/files/gguf/llama3_factors.h"

#include <gtest/gtest.h>

namespace mantissa::gguf {
namespace {

TEST(Llama3Factors, TheScalingOfKnownModelsIsFound) {
  for (const auto& [factor, head_dim] : {std::pair{8.0, 128}, {32.0, 128}, {32.0, 64}}) {
    const std::vector<float> factors = llama3_factors({factor, 1, 4, 8192}, 500000, head_dim);
    const auto scaling = llama3_scaling(factors, 500000, head_dim);
    ASSERT_TRUE(scaling);
    EXPECT_EQ((*scaling)["factor"], factor);
    EXPECT_EQ((*scaling)["high_freq_factor"], 4.0);
    EXPECT_EQ((*scaling)["original_max_position_embeddings"], 8192);
  }
}

TEST(Llama3Factors, OtherNumbersAreFoundFromTheFactors) {
  const Llama3Scaling scaling{6, 1, 3, 5000};
  const std::vector<float> factors = llama3_factors(scaling, 10000, 128);
  const auto found = llama3_scaling(factors, 10000, 128);
  ASSERT_TRUE(found);
  const Llama3Scaling again{(*found)["factor"], (*found)["low_freq_factor"], (*found)["high_freq_factor"],
                            (*found)["original_max_position_embeddings"]};
  const std::vector<float> same = llama3_factors(again, 10000, 128);
  for (std::size_t i = 0; i < factors.size(); ++i) EXPECT_NEAR(same[i], factors[i], 2e-5 * factors[i]) << i;
}

TEST(Llama3Factors, OnesMeanNoScaling) {
  const auto found = llama3_scaling(std::vector<float>(32, 1), 10000, 64);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->is_null());
}

TEST(Llama3Factors, OtherFactorsAreRefused) {
  std::vector<float> longrope(32);
  for (std::size_t i = 0; i < longrope.size(); ++i) longrope[i] = 1 + static_cast<float>(i % 7);
  EXPECT_FALSE(llama3_scaling(longrope, 10000, 64));
  EXPECT_FALSE(llama3_scaling({}, 10000, 64));
  EXPECT_FALSE(llama3_scaling(std::vector<float>(31, 1), 10000, 64));
  EXPECT_FALSE(llama3_scaling({0.5F, 1}, 10000, 4));
}

}  // namespace
}  // namespace mantissa::gguf
