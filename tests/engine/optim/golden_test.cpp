// Every optimizer over 40 steps compared with torch.optim in double (tools/golden_optim.py wrote
// tests/golden/optimizers.safetensors).
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "engine/optim/update_case.h"
#include "mantissa/files/io/checkpoint.h"

namespace mantissa::optim::golden_test {
namespace {

using mantissa::testing::UpdateCase;

constexpr int kSteps = 40;

/// Equal to tools/golden_optim.py.
std::vector<double> start(std::int64_t p, std::int64_t n) {
  std::vector<double> w;
  for (std::int64_t i = 0; i < n; ++i) w.push_back(static_cast<double>((i * 613 + p * 97) % 257 - 128) / 256);
  return w;
}
std::vector<double> gradient(std::int64_t p, std::int64_t n, std::int64_t t) {
  std::vector<double> g;
  for (std::int64_t i = 0; i < n; ++i)
    g.push_back((static_cast<double>((i * 7919 + t * 104729 + p * 31337) % 2003) - 1000.5) / 4096);
  return g;
}
double rate(int t) {
  return 0.01 * (1 - t / 80.0);
}

std::vector<Parameter> parameters(double weight_decay) {
  return {{.name = "tall.weight", .shape = {12, 5}, .hidden_matrix = true, .weight_decay = weight_decay},
          {.name = "wide.weight", .shape = {5, 12}, .hidden_matrix = true, .weight_decay = weight_decay},
          {.name = "embedding.weight", .shape = {11, 4}, .weight_decay = weight_decay},
          {.name = "vector.weight", .shape = {9}}};
}

struct GoldenCase {
  std::string name, optimizer;
  double weight_decay;
  Settings settings;
  /// How much a rounding may grow until it reaches a weight, in units of the step's learning rate: the
  /// operations of an element's step, and for Muon the slope a of the iteration to the power of its steps
  /// (3.44^5 = 484), twice for its products' sums.
  double roundings;
};

class Golden : public ::testing::TestWithParam<GoldenCase> {};

std::vector<double> golden(const std::string& name) {
  const io::WeightFiles file(std::filesystem::path(MANTISSA_SOURCE_DIR) /
                             "tests/golden/optimizers.safetensors");
  const io::TensorInfo* info = file.find(name);
  EXPECT_NE(info, nullptr) << name;
  std::vector<double> values(static_cast<std::size_t>(info->count()));
  file.read(name, std::as_writable_bytes(std::span(values)));
  return values;
}

void expect_golden(const GoldenCase& c, const char* policy, double u) {
  const std::vector<Parameter> all = parameters(c.weight_decay);
  UpdateCase run(c.optimizer, c.settings, all, precision::Policy::parse(policy));
  for (std::size_t p = 0; p < all.size(); ++p)
    run.set_weight(p, start(static_cast<std::int64_t>(p), all[p].shape.count()));
  for (int t = 1; t <= kSteps; ++t) {
    for (std::size_t p = 0; p < all.size(); ++p)
      run.set_gradient(p, gradient(static_cast<std::int64_t>(p), all[p].shape.count(), t));
    ASSERT_TRUE(run.step({.lr = rate(t), .t = t, .step = t}).applied);
    if (t != 1 && t != 5 && t != 40) continue;
    for (std::size_t p = 0; p < all.size(); ++p) {
      const std::string parameter = all[p].name.substr(0, all[p].name.find('.'));
      const std::vector<double> want = golden(c.name + "." + parameter + "." + std::to_string(t));
      const std::vector<double> got = run.weight(p);
      // Each step rounds the weight a few times, and its step, at most rate·(a few), by `roundings`.
      for (std::size_t i = 0; i < want.size(); ++i)
        ASSERT_NEAR(got[i], want[i], t * u * (4 * std::abs(want[i]) + c.roundings * rate(1)))
            << policy << ' ' << all[p].name << " element " << i << " after step " << t;
    }
  }
}

TEST_P(Golden, FollowsPyTorch) {
  expect_golden(GetParam(), "64-true", unit_roundoff(Scalar::f64));
  expect_golden(GetParam(), "32-true", unit_roundoff(Scalar::f32));
}

using Pair = std::array<double, 2>;

INSTANTIATE_TEST_SUITE_P(
    Optimizers, Golden,
    ::testing::Values(GoldenCase{"adamw", "adamw", 0.1, {}, 60}, GoldenCase{"adam", "adam", 0, {}, 60},
                      GoldenCase{"adam_decay", "adam", 0.1, {{"betas", Pair{0.8, 0.95}}, {"eps", 1e-6}}, 60},
                      GoldenCase{"sgd", "sgd", 0, {}, 8},
                      GoldenCase{"sgd_momentum", "sgd", 0.1, {{"momentum", 0.9}}, 40},
                      GoldenCase{"sgd_nesterov", "sgd", 0.1, {{"momentum", 0.9}, {"nesterov", true}}, 40},
                      GoldenCase{"lion", "lion", 0.1, {}, 4},
                      GoldenCase{"adafactor", "adafactor", 0.1, {}, 60},
                      GoldenCase{"adafactor_slow", "adafactor", 0, {{"beta2_decay", -0.5}}, 60},
                      GoldenCase{"muon", "muon", 0.1, {}, 2000},
                      GoldenCase{"muon_plain", "muon", 0.1, {{"nesterov", false}}, 2000}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mantissa::optim::golden_test
