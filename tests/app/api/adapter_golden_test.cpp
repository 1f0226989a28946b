// Adapters that peft wrote, against what peft computes with them (tools/golden_lora.py wrote the files).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "mantissa/app/api/mantissa.h"
#include "mantissa/files/io/checkpoint.h"

namespace mantissa {
namespace {

struct GoldenAdapter {
  const char* name;
  const char* base;
};

class GoldenAdapters : public ::testing::TestWithParam<GoldenAdapter> {};
INSTANTIATE_TEST_SUITE_P(
    Peft, GoldenAdapters,
    ::testing::Values(GoldenAdapter{"lora", "mistral"}, GoldenAdapter{"lora-in-out", "gpt2"},
                      GoldenAdapter{"rslora-merged", "phi3"}, GoldenAdapter{"dora", "llama-tied"},
                      GoldenAdapter{"dora-in-out", "gpt2-tied"}, GoldenAdapter{"patterns", "qwen3"}),
    [](const auto& i) {
      std::string name = i.param.name;
      std::ranges::replace(name, '-', '_');
      return name;
    });

std::vector<double> numbers(const api::Tensor& t) {
  std::vector<double> values(t.bytes.size() / sizeof(double));
  std::memcpy(values.data(), t.bytes.data(), t.bytes.size());
  return values;
}

TEST_P(GoldenAdapters, F64AgreesWithPeft) {
  const std::filesystem::path golden = std::filesystem::path(MANTISSA_SOURCE_DIR) / "tests/golden",
                              adapter = golden / "adapters" / GetParam().name;
  api::TraceOptions options;
  options.model = {golden / "families" / GetParam().base, adapter};
  options.tokens = golden / "families/tokens.safetensors";
  options.grads = true;
  options.precision.policy = "64-true";
  const api::Trace trace = api::trace(options);
  const io::WeightFiles expected(adapter / "expected.safetensors");
  std::size_t compared = 0;
  for (const api::Tensor& t : trace.tensors) {
    if (t.name == "log_probs") continue;
    const std::string_view name = t.name;
    ASSERT_NE(expected.find(name), nullptr) << name << ": frozen weights have no gradient";
    const std::vector<double> got = numbers(t);
    std::vector<double> want(got.size());
    expected.read_f64(name, want);
    double largest = 0, distance = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
      ASSERT_TRUE(std::isfinite(got[i])) << name;
      largest = std::max(largest, std::abs(want[i]));
      distance = std::max(distance, std::abs(got[i] - want[i]));
    }
    // About 1e4 operations, each off by 1.1e-16, on values of the size of the largest.
    EXPECT_LE(distance, 1e-11 * std::max(1.0, largest)) << name;
    ++compared;
  }
  EXPECT_EQ(compared, expected.tensors().size());
}

}  // namespace
}  // namespace mantissa
