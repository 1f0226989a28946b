// States of optimizers in blocks, against bitsandbytes and torchao (tools/golden_states.py writes the file)
// and by definition.
#include "mantissa/core/numeric/state_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "mantissa/core/numeric/quant_codes.h"
#include "mantissa/core/numeric/round.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::state_format_test {
namespace {

constexpr StateCodes kAll[] = {StateCodes::dynamic8, StateCodes::dynamic8_positive, StateCodes::e4m3,
                               StateCodes::f16};

/// Values in blocks.
struct Encoded {
  Encoded(StateCodes codes, const std::vector<float>& values, SimdTarget target = kBestTarget)
      : memory(BlockedState{codes, nullptr, values.size()}.bytes()),
        state{codes, memory.data(), values.size()} {
    encode_states(state, 0, values.data(), values.size(), target);
  }
  std::vector<float> values(SimdTarget target = kBestTarget) const {
    std::vector<float> all(state.count);
    decode_states(state, 0, all.size(), all.data(), target);
    return all;
  }
  std::vector<float> scales() const {
    const auto* first = reinterpret_cast<const float*>(memory.data());
    return {first, first + state.blocks()};
  }
  std::vector<std::uint8_t> codes() const {
    const auto* first = reinterpret_cast<const std::uint8_t*>(memory.data() + state.codes_begin());
    return {first, first + state.count * bytes_of(state.codes)};
  }

  std::vector<std::byte> memory;
  BlockedState state;
};

class GoldenStates : public ::testing::TestWithParam<SimdTarget> {
 protected:
  template <class T>
  std::vector<T> read(const std::string& name) const {
    const io::TensorInfo* info = file_.find(name);
    std::vector<T> values(static_cast<std::size_t>(info->count()));
    file_.read(*info, std::as_writable_bytes(std::span(values)));
    return values;
  }
  void expect(StateCodes codes, const std::vector<float>& values, const std::string& name,
              const std::string& scales) const {
    const Encoded got(codes, values, GetParam());
    EXPECT_TRUE(got.codes() == read<std::uint8_t>(name));
    EXPECT_EQ(got.scales(), read<float>(scales));
  }

 private:
  io::SafetensorsReader file_{std::filesystem::path(MANTISSA_SOURCE_DIR) / "tests/golden/states.safetensors"};
};

TEST_P(GoldenStates, HaveTheCodesAndScalesOfBitsandbytes) {
  std::vector<float> values = read<float>("codes.values");
  expect(StateCodes::dynamic8, values, "codes.signed", "codes.scales");
  EXPECT_EQ(Encoded(StateCodes::dynamic8, values).values(GetParam()), read<float>("codes.signed_values"));
  for (float& x : values) x = std::abs(x);
  expect(StateCodes::dynamic8_positive, values, "codes.positive", "codes.scales");
  EXPECT_EQ(Encoded(StateCodes::dynamic8_positive, values).values(GetParam()),
            read<float>("codes.positive_values"));
}

TEST_P(GoldenStates, InE4m3HaveTheCodesAndScalesOfTorchao) {
  expect(StateCodes::e4m3, read<float>("codes.values"), "e4m3.codes", "e4m3.scales");
}

TEST_P(GoldenStates, HaveTheNumbersOfTheDynamicMaps) {
  EXPECT_EQ(std::vector(kDynamicCodes.begin(), kDynamicCodes.end()), read<float>("map.signed"));
  EXPECT_EQ(std::vector(kPositiveDynamicCodes.begin(), kPositiveDynamicCodes.end()),
            read<float>("map.positive"));
}

INSTANTIATE_TEST_SUITE_P(Targets, GoldenStates, ::testing::ValuesIn(simd_targets()),
                         [](const auto& info) { return "target" + std::to_string(info.index); });

std::vector<float> random_values(std::size_t n, bool positive) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> x;
  for (std::size_t i = 0; i < n; ++i) {
    const float value = std::ldexp(normal(random), static_cast<int>(i / 700) * 9 - 60);
    x.push_back(positive ? value * value : value);
  }
  return x;
}

/// The signed map has 1 and no −1, so a block keeps its largest magnitude only if that is positive.
TEST(StateFormat, ReadsBackWhatItHasWritten) {
  for (const StateCodes codes : kAll) {
    std::vector<float> values = random_values(5000, codes == StateCodes::dynamic8_positive);
    for (std::size_t begin = 0; begin < values.size(); begin += kStateBlock) {
      const auto block = std::span(values).subspan(begin, std::min(kStateBlock, values.size() - begin));
      float& most = *std::ranges::max_element(block, {}, [](float x) { return std::abs(x); });
      most = std::abs(most);
    }
    const Encoded first(codes, values);
    const Encoded again(codes, first.values());
    EXPECT_EQ(again.values(), first.values()) << name(codes);
  }
}

/// A code is at most half the distance of two numbers away: of dynamic8 0.007 of the largest magnitude, of
/// formats half a unit in the last place, or of the smallest number.
TEST(StateFormat, RoundsToTheNearestNumber) {
  for (const StateCodes codes : kAll) {
    const std::vector<float> values = random_values(5000, codes == StateCodes::dynamic8_positive);
    const Encoded got(codes, values);
    const std::vector<float> rounded = got.values(), scales = got.scales();
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double x = static_cast<double>(values[i]), scale = static_cast<double>(scales[i / kStateBlock]);
      const double error = std::abs(static_cast<double>(rounded[i]) - x);
      if (codes == StateCodes::e4m3 || codes == StateCodes::f16) {
        const Scalar type = codes == StateCodes::f16 ? Scalar::f16 : Scalar::e4m3;
        ASSERT_LE(error, (ulp(x / scale, type) / 2 * scale) * (1 + 1e-6) + 1e-6 * std::abs(x))
            << name(codes) << i;
      } else {
        ASSERT_LE(error, 0.00705 * scale) << name(codes) << i;
      }
    }
  }
}

TEST(StateFormat, KeepsZerosAndMarksBlocksThatAreNotFinite) {
  for (const StateCodes codes : kAll) {
    std::vector<float> values(kStateBlock * 3 + 5, 0.0F);
    values[kStateBlock] = std::numeric_limits<float>::infinity();
    values[2 * kStateBlock + 1] = std::numeric_limits<float>::quiet_NaN();
    values.back() = 0x1p-149F;
    const std::vector<float> got = Encoded(codes, values).values();
    for (std::size_t i = 0; i < kStateBlock; ++i) {
      ASSERT_EQ(std::bit_cast<std::uint32_t>(got[i]), 0U) << name(codes);
      ASSERT_TRUE(std::isnan(got[kStateBlock + i]) && std::isnan(got[2 * kStateBlock + i])) << name(codes);
    }
    EXPECT_TRUE(std::isfinite(got.back())) << name(codes);
  }
}

TEST(StateFormat, OfMemoryThatIsZeroIsZero) {
  for (const StateCodes codes : kAll) {
    std::vector<std::byte> memory(BlockedState{codes, nullptr, 300}.bytes());
    std::vector<float> values(300, 1);
    decode_states({codes, memory.data(), 300}, 0, 300, values.data());
    EXPECT_EQ(values, std::vector<float>(300)) << name(codes);
  }
}

TEST(StateFormat, HasTheSameBytesForEveryPartOfWholeBlocksAndInstructionSet) {
  for (const StateCodes codes : kAll) {
    const std::vector<float> values = random_values(3000, codes == StateCodes::dynamic8_positive);
    const Encoded whole(codes, values);
    for (const SimdTarget target : simd_targets()) {
      Encoded parts(codes, std::vector<float>(values.size()), target);
      for (std::size_t first = 0; first < values.size(); first += 2 * kStateBlock) {
        encode_states(parts.state, first, values.data() + first,
                      std::min(2 * kStateBlock, values.size() - first), target);
      }
      EXPECT_TRUE(parts.memory == whole.memory) << name(codes);
      EXPECT_EQ(parts.values(target), whole.values()) << name(codes);
    }
  }
}

TEST(StateFormat, HasANameThatReadsBack) {
  for (const StateFormat& f : kBlockedStates) EXPECT_EQ(parse_state_format(name(f)), f);
  EXPECT_EQ(parse_state_format("Dynamic8-256"), StateFormat(StateCodes::dynamic8));
  EXPECT_EQ(parse_state_format("bfloat16"), StateFormat(Scalar::bf16));
  EXPECT_EQ(parse_state_format("dynamic8"), std::nullopt);
}

}  // namespace
}  // namespace mantissa::state_format_test
