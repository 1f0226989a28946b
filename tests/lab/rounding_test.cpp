// Traces: rounding explains small differences, and a fault is named at its op.
#include "mantissa/lab/diff/rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>

#include "core/disk/temporary.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/files/io/safetensors.h"
#include "mantissa/lab/diff/diff.h"

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
  Diff compare(const std::vector<double>& errors, const std::string& policy, float spoilt = 0,
               const std::string& formats_b = "", const std::string& other_a = "") const {
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
    const std::string formats_a = formats_b.empty() ? "" : other_a.empty() ? kFormats : other_a;
    return diff(write("a", a, policy, formats_a), write("b", b, policy, formats_b), false, *runtime::cpu({}));
  }
  /// All ops in f32.
  const std::string kFormats =
      R"({"value.model.embed_tokens.gather": {"store": "f32", "output": "f32"},
          "value.model.norm.rmsnorm": {"store": "f32", "accumulate": "f32", "output": "f32"},
          "value.lm_head.matmul": {"multiply": "f32", "accumulate": "f32", "output": "f32"}})";

 private:
  static constexpr unsigned kSeed = 3;

  std::filesystem::path write(const std::string& name,
                              const std::map<std::string, std::vector<float>>& values,
                              const std::string& policy, const std::string& formats) const {
    std::vector<io::TensorToWrite> out;
    for (const std::string& op : kOps)
      out.push_back({op, io::Dtype::f32, {kRows, kWidth}, std::as_bytes(std::span(values.at(op))), nullptr});
    std::map<std::string, std::string> metadata = {{"mantissa.policy", policy}};
    if (!formats.empty()) metadata["mantissa.formats"] = formats;
    io::write_safetensors(folder / name, out, metadata);
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

TEST_F(Rounding, IsJudgedByTheFormatsOfEachOpAndNamesWhereTheyDiffer) {
  const double bf16 = unit_roundoff(Scalar::bf16);
  std::string b = kFormats;
  b.replace(b.rfind("f32"), 3, "bf16");
  const std::string policy = "32-true; lm_head: compute=bf16";
  const Diff rounded = compare({0, 0, bf16}, policy, 0, b);
  ASSERT_TRUE(rounded.formats && rounded.rounding);
  EXPECT_EQ(to_text(*rounded.formats),
            "formats differ at 1 of 3 tensors, first at lm_head matmul: A is f32 and B is bf16");
  EXPECT_FALSE(rounded.rounding->fault());
  EXPECT_EQ(trace_verdicts(rounded).front(), to_text(*rounded.formats));
  // bf16 at the head does not explain a difference before it.
  const Diff fault = compare({0, bf16, bf16}, policy, 0, b);
  EXPECT_TRUE(fault.rounding->fault());
  EXPECT_EQ(fault.rounding->name, "value.model.norm.rmsnorm");
  EXPECT_EQ(fault.rounding->unit, "f32");
  const nlohmann::json json = nlohmann::json::parse(to_json(rounded))["formats"];
  EXPECT_EQ(json["first"], "value.lm_head.matmul");
  EXPECT_EQ(json["a"]["output"], "f32");
  EXPECT_EQ(json["b"]["output"], "bf16");
}

/// Values that both sides round alike differ by what sums differ, not by a step of their format.
TEST_F(Rounding, OfAccumulatorsAloneDoesNotExplainAStepOfTheValues) {
  const std::string a = std::regex_replace(kFormats, std::regex("\"output\": \"f32\"|\"multiply\": \"f32\""),
                                           "\"multiply\": \"bf16\", \"output\": \"bf16\""),
                    b = std::regex_replace(a, std::regex("\"accumulate\": \"f32\""),
                                           "\"accumulate\": \"h100\"");
  const double u = unit_roundoff(Scalar::bf16), sums = std::sqrt(2.0 * kWidth) * 0x1p-22;
  const Diff explained = compare({0, 0, std::sqrt(6 * u * sums)}, "bf16-mixed", 0, b, a);
  EXPECT_FALSE(explained.rounding->fault());
  EXPECT_NE(to_text(*explained.rounding).find("rounding of the accumulator (f32 and h100) explains every"),
            std::string::npos);
  const Diff planted = compare({0, 0, u}, "bf16-mixed", 0, b, a);
  EXPECT_TRUE(planted.rounding->fault());
  EXPECT_NEAR(planted.rounding->allowance, std::sqrt(6 * u * sums) + sums, 1e-6);
  // Where a format of values differs, too, it explains a step.
  const std::string c = std::regex_replace(b, std::regex("\"store\": \"f32\""), "\"store\": \"bf16\"");
  EXPECT_FALSE(compare({0, 0, u}, "bf16-mixed", 0, c, a).rounding->fault());
}

TEST_F(Rounding, FormatsOfTracesThatDoNotRecordThemAreUnknown) {
  const Diff d = compare({0, 0, 0.5}, "32-true");
  EXPECT_EQ(trace_verdicts(d).front(), "formats: unknown in A and B, which do not record them");
}

TEST_F(Rounding, IsReportedAsJson) {
  const nlohmann::json json = nlohmann::json::parse(to_json(compare({0, 0, 0.5}, "32-true")));
  EXPECT_EQ(json["rounding"]["explains"], false);
  EXPECT_EQ(json["rounding"]["name"], "value.lm_head.matmul");
  EXPECT_FALSE(compare({0, 0, 0}, "32-true").rounding);
}

/// Gradients of three weights, and a trace with them and `more`, each side with relative errors of up to
/// `errors[weight]`.
class GradientRounding : public test::TemporaryFolder {
 public:
  Diff compare(const std::vector<double>& errors, bool logits, const std::string& policy = "32-true") const {
    std::mt19937 random(kSeed);
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> error(-1, 1);
    std::vector<std::vector<float>> a(kNames.size()), b(kNames.size());
    for (std::size_t n = 0; n < kNames.size(); ++n) {
      for (std::int64_t i = 0; i < kRows * kWidth; ++i) {
        const double x = normal(random);
        a[n].push_back(static_cast<float>(x));
        b[n].push_back(static_cast<float>(x * (1 + errors[n] * error(random))));
      }
    }
    return diff(write("a", a, logits, policy), write("b", b, false, policy), false, *runtime::cpu({}));
  }

 private:
  static constexpr unsigned kSeed = 3;
  const std::vector<std::string> kNames = {"grad.model.embed_tokens.weight", "grad.model.norm.weight",
                                           "grad.lm_head.weight"};

  std::filesystem::path write(const std::string& name, const std::vector<std::vector<float>>& values,
                              bool logits, const std::string& policy) const {
    std::vector<io::TensorToWrite> out;
    for (std::size_t n = 0; n < kNames.size(); ++n)
      out.push_back(
          {kNames[n], io::Dtype::f32, {kRows, kWidth}, std::as_bytes(std::span(values[n])), nullptr});
    static const float loss = 2;
    out.push_back({"loss", io::Dtype::f32, {1}, std::as_bytes(std::span(&loss, 1)), nullptr});
    if (logits)
      out.push_back(
          {"logits", io::Dtype::f32, {kRows, kWidth}, std::as_bytes(std::span(values[0])), nullptr});
    io::write_safetensors(folder / name, out, {{"mantissa.policy", policy}});
    return folder / name;
  }
};

TEST_F(GradientRounding, TracesOfGradientsWithoutLogitsAreComparable) {
  const double f32 = unit_roundoff(Scalar::f32);
  for (const bool logits : {false, true}) {
    const Diff d = compare({f32, f32, f32}, logits);
    EXPECT_TRUE(d.is_trace());
    ASSERT_TRUE(d.rounding);
    EXPECT_FALSE(d.rounding->forward);
    EXPECT_FALSE(d.rounding->fault());
    EXPECT_EQ(d.rounding->gradients.size(), 3U);
  }
}

TEST_F(GradientRounding, EachParameterHasAVerdict) {
  const double f32 = unit_roundoff(Scalar::f32);
  const Diff d = compare({f32, 1e-2, f32}, false);
  ASSERT_TRUE(d.rounding);
  ASSERT_EQ(d.rounding->gradients.size(), 3U);
  EXPECT_TRUE(d.rounding->gradients[0].explains);  // from the last weight to the first
  EXPECT_FALSE(d.rounding->gradients[1].explains);
  EXPECT_EQ(d.rounding->gradients[1].name, "grad.model.norm.weight");
  EXPECT_TRUE(d.rounding->gradients[2].explains);
  EXPECT_TRUE(d.rounding->fault());
  EXPECT_NE(to_text(*d.rounding)
                .find("gradients beyond rounding: 1 of 3 that differ; the first is model.norm.weight"),
            std::string::npos)
      << to_text(*d.rounding);
  EXPECT_FALSE(compare({f32, 1e-2, f32}, false, "bf16-mixed").rounding->fault());
  // The gradient depends on every op, and an op of the forward pass may round although no file has its value.
  EXPECT_FALSE(compare({f32, 1e-2, f32}, false, "32-true; *: op=rmsnorm compute=bf16").rounding->fault());
  const nlohmann::json json = nlohmann::json::parse(to_json(d));
  EXPECT_EQ(json["rounding"]["explains"], false);
  EXPECT_EQ(json["rounding"]["gradients"][1]["name"], "grad.model.norm.weight");
  EXPECT_EQ(json["rounding"]["gradients"][1]["explains"], false);
  EXPECT_NEAR(json["tensors"]["list"][1]["relative_rms"].get<double>(), 1e-2 / std::sqrt(3), 1e-3);
}

}  // namespace
}  // namespace mantissa::lab
