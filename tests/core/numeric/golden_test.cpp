// Compares blocks with shared scales with the results of microxcaling, torchao and Transformer Engine
// (tools/golden_blocks.py writes the file).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/numeric/row_functions.h"
#include "mantissa/core/numeric/block_codes.h"
#include "mantissa/core/numeric/scaled.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::golden_test {
namespace {

class GoldenBlocks : public ::testing::Test {
 protected:
  std::vector<float> read(const std::string& name) const {
    const io::TensorInfo* info = file_.find(name);
    std::vector<float> values(static_cast<std::size_t>(info->count()));
    file_.read(*info, std::as_writable_bytes(std::span(values)));
    return values;
  }
  std::vector<float> mx(const std::string& part, BlockFormat f, SimdTarget target) const {
    std::vector<float> values = read(part + ".values");
    round_blocks(f, values.data(), values.size(), 1, target);
    return values;
  }

  io::SafetensorsReader file_{std::filesystem::path(MANTISSA_SOURCE_DIR) / "tests/golden/blocks.safetensors"};
};

/// Returns the bytes of a tensor.
std::vector<std::uint8_t> bytes_of(const io::SafetensorsReader& file, const std::string& name) {
  const io::TensorInfo* info = file.find(name);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(info->count()) *
                                  (name.starts_with("element") ? 2 : 1));
  file.read(*info, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

/// Expects `got` to equal `want`, element by element under `same`.
void expect_all(const std::vector<float>& got, const std::vector<float>& want,
                const std::vector<float>& values, const std::function<bool(float, float)>& same) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(same(got[i], want[i]))
        << "element " << i << ": " << values[i] << " became " << got[i] << ", expected " << want[i];
  }
}

bool same_value(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}
bool same_bits(float a, float b) {
  return std::memcmp(&a, &b, sizeof(float)) == 0;
}

TEST_F(GoldenBlocks, EqualMicroxcaling) {
  for (const SimdTarget target : simd_targets()) {
    for (const BlockFormat f : {BlockFormat::mxfp8, BlockFormat::mxfp8_e5m2, BlockFormat::mxfp4}) {
      SCOPED_TRACE(traits(f).name);
      expect_all(mx("mx", f, target), read(fmt::format("mx.{}", traits(f).name)), read("mx.values"),
                 same_value);
    }
  }
}

// Cases where microxcaling deviates from the specification and torchao does not: a largest magnitude just
// below a power of two, elements just below half of the smallest one, and signed zeros.
TEST_F(GoldenBlocks, FollowTheSpecificationWhereMicroxcalingDeviates) {
  for (const SimdTarget target : simd_targets()) {
    for (const BlockFormat f : {BlockFormat::mxfp8, BlockFormat::mxfp8_e5m2, BlockFormat::mxfp4}) {
      SCOPED_TRACE(traits(f).name);
      expect_all(mx("text", f, target), read(fmt::format("text.{}", traits(f).name)), read("text.values"),
                 same_bits);
    }
  }
}

/// Blocks that begin with zero, infinity, nan, subnormals, powers of two, the largest values, and the
/// neighbours of all: the codes of scales and the values of elements.
TEST_F(GoldenBlocks, HaveTorchaosCodesUnderEachRoundingOfScales) {
  const std::vector<float> values = read("scale.values");
  constexpr std::pair<ScaleRounding, std::string_view> kModes[] = {{ScaleRounding::floor, "floor"},
                                                                   {ScaleRounding::ceil, "ceil"},
                                                                   {ScaleRounding::even, "even"},
                                                                   {ScaleRounding::rceil, "rceil"}};
  for (const SimdTarget target : simd_targets()) {
    for (const auto& [rounding, mode] : kModes) {
      for (const BlockFormat f : kBlockFormats) {
        if (f == BlockFormat::nvfp4) continue;
        SCOPED_TRACE(fmt::format("{} {}", traits(f).name, mode));
        const std::vector<std::uint8_t> want_scales =
            bytes_of(file_, fmt::format("scale.{}.{}", mode, traits(f).name));
        const std::vector<std::uint8_t> elements =
            bytes_of(file_, fmt::format("element.{}.{}", mode, traits(f).name));
        std::vector<std::uint8_t> scales(want_scales.size()), coded(values.size());
        testing::encode_blocks(f, values.data(), values.size(), coded.data(), scales.data(), 1, target,
                               rounding);
        ASSERT_EQ(scales, want_scales);
        const std::vector<std::uint8_t> ones(scales.size(), 127);  // 2^0: the elements alone
        std::vector<float> got(values.size()), want(values.size());
        decode_blocks({coded.data(), ones.data(), f}, 0, got.size(), got.data(), target);
        for (std::size_t i = 0; i < want.size(); ++i) {
          const bool nan = want_scales[i / 32] == 255;  // such blocks have elements of zero here
          const auto high = static_cast<std::uint32_t>(elements[2 * i] | elements[2 * i + 1] << 8);
          want[i] = nan ? got[i] : std::bit_cast<float>(high << 16);
        }
        expect_all(got, want, values, same_value);
      }
    }
  }
}

TEST_F(GoldenBlocks, OfNvfp4EqualTransformerEngine) {
  const std::vector<float> values = read("nv.values"), scales = read("nv.scale"), want = read("nv.nvfp4");
  const std::size_t width = values.size() / scales.size();
  for (const SimdTarget target : simd_targets()) {
    std::vector<float> got = values;
    for (std::size_t row = 0; row < scales.size(); ++row) {
      float amax = 0;
      for (std::size_t i = 0; i < width; ++i) amax = std::max(amax, std::abs(values[row * width + i]));
      EXPECT_EQ(nvfp4_tensor_scale(amax), scales[row]);
      round_blocks(BlockFormat::nvfp4, got.data() + row * width, width, scales[row], target);
    }
    expect_all(got, want, values, same_value);
  }
}

}  // namespace
}  // namespace mantissa::golden_test
