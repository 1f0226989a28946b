// K types: the bytes of llama.cpp's quantizer, what they decode to, and what they refuse.
#include "mantissa/files/gguf/k_quants.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "mantissa/files/gguf/quants.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::gguf {
namespace {

constexpr std::size_t kBlock = 256;

class KQuants : public ::testing::TestWithParam<TensorType> {
 protected:
  static std::vector<std::byte> encoded(const std::vector<float>& values) {
    std::vector<std::byte> out(values.size() / kBlock * traits(GetParam()).bytes);
    EXPECT_TRUE(quantize(GetParam(), values.data(), values.size(), out.data()));
    return out;
  }
  static std::vector<float> decoded(const std::vector<std::byte>& stored) {
    std::vector<float> values(stored.size() / traits(GetParam()).bytes * kBlock);
    dequantize(GetParam(), stored.data(), values.size() / kBlock, values.data());
    return values;
  }
};

TEST_P(KQuants, HaveTheBytesOfLlamaCpp) {
  const io::SafetensorsReader file(std::filesystem::path(MANTISSA_SOURCE_DIR) /
                                   "tests/golden/k_quants.safetensors");
  const io::TensorInfo* info = file.find("values");
  ASSERT_NE(info, nullptr);
  std::vector<float> values(static_cast<std::size_t>(info->count()));
  file.read(*info, std::as_writable_bytes(std::span(values)));
  const std::vector<std::byte> mine = encoded(values);
  std::vector<std::byte> theirs(mine.size());
  const io::TensorInfo* blocks = file.find(lower_name(traits(GetParam())) + ".blocks");
  ASSERT_NE(blocks, nullptr);
  file.read(*blocks, theirs);
  const std::size_t bytes = traits(GetParam()).bytes;
  for (std::size_t b = 0; b < values.size() / kBlock; ++b) {
    EXPECT_TRUE(std::equal(mine.begin() + static_cast<std::ptrdiff_t>(b * bytes),
                           mine.begin() + static_cast<std::ptrdiff_t>((b + 1) * bytes),
                           theirs.begin() + static_cast<std::ptrdiff_t>(b * bytes)))
        << "block " << b;
  }
}

/// Normal values lose at most what the bits of a code leave: the rms error of a uniform quantizer of the
/// width of three standard deviations on each side, and a fifth for the scales.
TEST_P(KQuants, DecodeToValuesNearby) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  std::vector<float> values(64 * kBlock);
  for (float& value : values) value = normal(random);
  const std::vector<float> after = decoded(encoded(values));
  double error = 0;
  for (std::size_t i = 0; i < values.size(); ++i)
    error += std::pow(static_cast<double>(after[i] - values[i]), 2);
  const int bits = GetParam() == TensorType::q3_k   ? 3
                   : GetParam() == TensorType::q4_k ? 4
                   : GetParam() == TensorType::q5_k ? 5
                                                    : 6;
  const double step = 6 / std::ldexp(1, bits);
  EXPECT_LT(std::sqrt(error / static_cast<double>(values.size())), 1.2 * step / std::sqrt(12));
}

TEST_P(KQuants, RefuseWhatTheyCannotHold) {
  std::vector<std::byte> out(traits(GetParam()).bytes);
  for (const float bad : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(), 1e9F, -3e38F}) {
    for (const std::size_t at : {std::size_t{0}, kBlock - 1}) {
      std::vector<float> values(kBlock, 0.5F);
      values[at] = bad;
      EXPECT_FALSE(quantize(GetParam(), values.data(), kBlock, out.data())) << bad;
    }
  }
  // Values that no f16 scale can reach from below become zeros.
  const std::vector<float> tiny = decoded(encoded(std::vector<float>(kBlock, 1e-42F)));
  EXPECT_TRUE(std::ranges::all_of(tiny, [](float x) { return x == 0; }));
}

INSTANTIATE_TEST_SUITE_P(Types, KQuants,
                         ::testing::Values(TensorType::q3_k, TensorType::q4_k, TensorType::q5_k,
                                           TensorType::q6_k),
                         [](const auto& info) { return lower_name(traits(info.param)); });

}  // namespace
}  // namespace mantissa::gguf
