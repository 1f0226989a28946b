// Compares blocks with shared scales with the results of microxcaling, torchao and Transformer Engine
// (tools/golden_blocks.py writes the file).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

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
