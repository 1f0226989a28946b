// Traces: rounding explains small differences, and a fault is named at its op.
#include "mantissa/lab/diff/rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "io/temporary.h"
#include "mantissa/io/safetensors.h"
#include "mantissa/lab/diff/diff.h"
#include "mantissa/runtime/device.h"

namespace mantissa::lab {
namespace {

constexpr std::int64_t kRows = 16, kWidth = 64;
const std::vector<std::string> kOps = {"value.model.embed_tokens.gather", "value.model.norm.rmsnorm",
                                       "value.lm_head.matmul"};

/// Random values for each op, each side with relative errors of up to `errors[op]`.
class Rounding : public test::TemporaryFolder {
 public:
  RoundingVerdict judge(const std::vector<double>& errors, const std::string& policy,
                        float spoilt = 0) const {
    return *compare(errors, policy, spoilt).rounding;
  }
  Diff compare(const std::vector<double>& errors, const std::string& policy, float spoilt = 0) const {
    std::mt19937 random(kSeed);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> error(-1, 1);
    std::map<std::string, std::vector<float>> a, b;
    for (std::size_t op = 0; op < kOps.size(); ++op) {
      for (std::int64_t i = 0; i < kRows * kWidth; ++i) {
        const double x = normal(random);
        a[kOps[op]].push_back(static_cast<float>(x));
        b[kOps[op]].push_back(static_cast<float>(x * (1 + errors[op] * error(random))));
      }
    }
    if (spoilt != 0) b[kOps[1]][7] = spoilt;
    return diff(write("a", a, policy), write("b", b, policy), false, *runtime::cpu({}));
  }

 private:
  static constexpr unsigned kSeed = 3;

  std::filesystem::path write(const std::string& name,
                              const std::map<std::string, std::vector<float>>& values,
                              const std::string& policy) const {
    std::vector<io::TensorToWrite> out;
    for (const std::string& op : kOps)
      out.push_back({op, io::Dtype::f32, {kRows, kWidth}, std::as_bytes(std::span(values.at(op))), nullptr});
    io::write_safetensors(folder / name, out, {{"mantissa.policy", policy}});
    return folder / name;
  }
};

TEST_F(Rounding, ExplainsAnErrorOfTheFormat) {
  const double f32 = unit_roundoff(Scalar::f32), bf16 = unit_roundoff(Scalar::bf16);
  EXPECT_TRUE(judge({0, f32, 2 * f32}, "32-true").explains);
  EXPECT_TRUE(judge({0, bf16, 2 * bf16}, "bf16-mixed").explains);
  EXPECT_EQ(judge({0, bf16, bf16}, "bf16-mixed").unit, "bf16");
}

TEST_F(Rounding, DoesNotExplainAFaultAndNamesItsOp) {
  const double f32 = unit_roundoff(Scalar::f32);
  const RoundingVerdict v = judge({0, f32, 1e-3}, "32-true");
  EXPECT_FALSE(v.explains);
  EXPECT_EQ(v.name, "value.lm_head.matmul");
  EXPECT_NEAR(v.difference, 1e-3 / std::sqrt(3), 1e-4);
  // 4 · (the difference of rmsnorm, below 2u) + 2u + √(2K) · u
  EXPECT_LT(v.allowance, (8 + 2 + std::sqrt(2.0 * kWidth)) * f32);
  EXPECT_NE(to_text(v).find("beyond rounding: the first such op is lm_head matmul"), std::string::npos);
  EXPECT_TRUE(judge({0, f32, 1e-3}, "bf16-mixed").explains);
}

TEST_F(Rounding, ADifferenceThatOnlyPassesThroughIsNotASecondFault) {
  EXPECT_EQ(judge({0, 0.5, 0.5}, "32-true").name, "value.model.norm.rmsnorm");
  EXPECT_EQ(judge({0.5, 0.5, 0.5}, "32-true").name, "value.model.embed_tokens.gather");
}

TEST_F(Rounding, NonFiniteValueOnOneSideIsBeyondRounding) {
  const RoundingVerdict v = judge({0, 0, 0}, "32-true", INFINITY);
  EXPECT_FALSE(v.explains);
  EXPECT_TRUE(v.nonfinite);
  EXPECT_EQ(v.name, "value.model.norm.rmsnorm");
}

TEST_F(Rounding, IsReportedAsJson) {
  const nlohmann::json json = nlohmann::json::parse(to_json(compare({0, 0, 0.5}, "32-true")));
  EXPECT_EQ(json["rounding"]["explains"], false);
  EXPECT_EQ(json["rounding"]["name"], "value.lm_head.matmul");
  EXPECT_FALSE(compare({0, 0, 0}, "32-true").rounding);
}

}  // namespace
}  // namespace mantissa::lab
