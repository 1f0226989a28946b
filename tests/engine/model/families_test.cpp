// Every family compared with transformers (tools/golden_families.py wrote the files).
#include <gtest/gtest.h>

#include "engine/model/golden.h"

namespace mantissa::model::families_test {
namespace {

using mantissa::testing::expect_golden;
using mantissa::testing::GoldenTokens;
using mantissa::testing::kGolden;
using mantissa::testing::read_json;
using mantissa::testing::trace;

const std::filesystem::path kFamilies = kGolden / "families";

std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kFamilies)) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

class GoldenFamily : public ::testing::TestWithParam<std::string> {
 protected:
  std::filesystem::path directory() const { return kFamilies / GetParam(); }
  GoldenTokens tokens() const { return GoldenTokens(kFamilies / "tokens.safetensors"); }
};

TEST_P(GoldenFamily, InF64AgreesWithTransformers) {
  // About 1e4 operations, each off by 1.1e-16 of values up to the largest: 1e-12 of it bounds any order of
  // summation. What is smaller than 1 is a sum of terms of order 1 (log-probabilities, gradients).
  expect_golden(directory() / "trace_f64.safetensors", trace(directory(), "64-true", tokens()),
                [](const std::string&, double largest) { return 1e-12 * std::max(1.0, largest); });
}

TEST_P(GoldenFamily, InF32IsAsNearToF64AsTransformersIs) {
  // Another order of summation may err in another direction, and on other elements: eight times the largest
  // error of transformers. The loss is one number, whose error may have cancelled: as a mean of
  // log-probabilities it has their bound.
  const nlohmann::json spreads = read_json(directory() / "spreads.json");
  expect_golden(directory() / "trace_f64.safetensors", trace(directory(), "32-true", tokens()),
                [&](const std::string& name, double) {
                  return 8 * spreads[name == "loss" ? "log_probs" : name].get<double>();
                });
}

INSTANTIATE_TEST_SUITE_P(Models, GoldenFamily, ::testing::ValuesIn(cases()), [](const auto& i) {
  std::string name = i.param;
  std::ranges::replace(name, '-', '_');
  return name;
});

}  // namespace
}  // namespace mantissa::model::families_test
