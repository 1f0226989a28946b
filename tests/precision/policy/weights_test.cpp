// The field `weights`: the format in which a model will be served.
#include <gtest/gtest.h>

#include <string>

#include "mantissa/core/base/error.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/precision/policy/supported.h"

namespace mantissa::precision::weights_test {
namespace {

std::string error_of(const std::string& line) {
  try {
    check_supported(Policy::parse(line));
  } catch (const ConfigError& e) {
    return e.what();
  }
  return {};
}

WeightFormat format_of(const Policy& policy, const char* parameter) {
  return policy.resolve(master_use(parameter)).weights;
}

TEST(Weights, ParseAndPrint) {
  for (const char* format : {"q4_0", "q8_0", "int4-32", "nf4", "mxfp4", "nvfp4"}) {
    const Policy policy = Policy::parse(std::string("bf16-mixed weights=") + format);
    EXPECT_EQ(name(format_of(policy, "model.layers.0.mlp.up_proj.weight")), format);
    EXPECT_NE((policy.line() + " ").find(std::string(" weights=") + format + " "), std::string::npos)
        << policy.line();
    EXPECT_EQ(Policy::parse(policy.line()), policy);
    EXPECT_EQ(error_of(std::string("bf16-mixed weights=") + format), "");
  }
  EXPECT_EQ(Policy::parse("bf16-mixed weights=none").line(), Policy::parse("bf16-mixed").line());
  EXPECT_EQ(Policy::parse("weights=Q4_0"), Policy::parse("weights=q4_0")) << "as llama.cpp writes it";
}

TEST(Weights, AreSetByRulesForModulesAndParameters) {
  const Policy policy = Policy::parse(
      "bf16-mixed weights=q4_0; *.mlp.*: weights=nf4; lm_head: weights=none; *.q_proj.weight: weights=q8_0");
  EXPECT_EQ(format_of(policy, "model.layers.0.mlp.up_proj.weight"), WeightFormat::nf4);
  EXPECT_EQ(format_of(policy, "lm_head.weight"), WeightFormat::none);
  EXPECT_EQ(format_of(policy, "model.layers.0.self_attn.q_proj.weight"), WeightFormat::q8_0);
  EXPECT_EQ(format_of(policy, "model.embed_tokens.weight"), WeightFormat::q4_0);
}

TEST(Weights, NameTheirValuesInErrors) {
  EXPECT_NE(error_of("weights=q4_1").find("did you mean \"q4_0\"?"), std::string::npos);
  EXPECT_NE(error_of("weights=bf16").find("params sets the format of the masters"), std::string::npos);
  EXPECT_NE(error_of("64-true weights=q4_0").find("weights=q4_0 is not available under 64-true"),
            std::string::npos);
}

TEST(Weights, HoldForAllUsesAndSteps) {
  for (const char* rule : {"{match = \"*\", op = \"matmul\", weights = \"q4_0\"}",
                           "{match = \"*\", pass = \"forward\", weights = \"q4_0\"}",
                           "{match = \"*\", operand = \"weight\", weights = \"q4_0\"}"})
    EXPECT_NE(error_of(std::string("bf16-mixed; ") + rule).find("remove op, pass and operand"),
              std::string::npos)
        << error_of(std::string("bf16-mixed; ") + rule);
  EXPECT_NE(
      error_of("bf16-mixed; {match = \"*\", steps = \"100:\", weights = \"q4_0\"}").find("remove steps"),
      std::string::npos);
}

}  // namespace
}  // namespace mantissa::precision::weights_test
