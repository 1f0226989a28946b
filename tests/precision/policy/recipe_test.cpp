// The fields of recipes for formats with scales: how scales are rounded and shared, how gradients round, and
// transforms.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/precision/policy/idle_fields.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/precision/policy/supported.h"

namespace mantissa::precision::recipe_test {
namespace {

std::string error_of(const std::string& line) {
  try {
    check_supported(Policy::parse(line));
  } catch (const ConfigError& e) {
    return e.what();
  }
  return {};
}

TEST(RecipeFields, ParseAndPrint) {
  for (const char* fields :
       {"scale_rounding=rceil", "scale_rounding=ceil", "scale_rounding=even", "gradient_rounding=stochastic",
        "weight_block=16x16", "weight_block=32x32", "weight_block=128x128", "weight_block=row",
        "activation_block=1x128", "activation_block=row", "hadamard=16"}) {
    const Policy policy = Policy::parse(std::string("bf16-mixed compute=nvfp4 ") + fields);
    EXPECT_NE((" " + policy.line() + " ").find(std::string(" ") + fields + " "), std::string::npos)
        << policy.line();
    EXPECT_EQ(Policy::parse(policy.line()), policy);
  }
  const Policy plain = Policy::parse(
      "bf16-mixed scale_rounding=floor gradient_rounding=nearest weight_block=auto activation_block=auto "
      "hadamard=none");
  EXPECT_EQ(plain.line(), Policy::parse("bf16-mixed").line()) << "usual values are left out";
  for (const char* compute : {"mxfp6-e2m3", "mxfp6-e3m2"})
    EXPECT_EQ(Policy::parse(std::string("bf16-mixed compute=") + compute).resolve({}).compute->name, compute);
}

TEST(RecipeFields, AreSetByRulesForScopesOperandsAndSteps) {
  const Policy policy = Policy::parse(
      "bf16-mixed compute=nvfp4 gradient_rounding=stochastic; *.mlp: scale_rounding=even hadamard=16; "
      "*.attn: steps=100: compute=bf16; *.down_proj: operand=gradient gradient_rounding=nearest");
  EXPECT_EQ(policy.resolve({"model.mlp", "matmul"}).hadamard, Hadamard::tokens_16);
  EXPECT_EQ(policy.resolve({"model.attn", "matmul"}).hadamard, Hadamard::none);
  const Use gradient{"model.mlp.down_proj", "matmul", Pass::backward, 0, "gradient"};
  EXPECT_EQ(policy.resolve(gradient).gradient_rounding, Rounding::nearest);
  EXPECT_EQ(policy.resolve({"model.mlp.up_proj", "matmul"}).gradient_rounding, Rounding::stochastic);
}

TEST(RecipeFields, NameTheirValuesInErrors) {
  EXPECT_NE(error_of("bf16-mixed compute=mxfp8 scale_rounding=celi").find("did you mean"), std::string::npos);
  EXPECT_NE(error_of("bf16-mixed compute=nvfp4 weight_block=64x64").find("16x16, 32x32, 128x128"),
            std::string::npos);
  EXPECT_NE(error_of("bf16-mixed compute=nvfp4 activation_block=128").find("1x128"), std::string::npos);
  EXPECT_NE(error_of("bf16-mixed compute=nvfp4 hadamard=32").find("none, 16"), std::string::npos);
  EXPECT_NE(
      error_of("bf16-mixed compute=nvfp4 gradient_rounding=toward-zero").find("use nearest or stochastic"),
      std::string::npos);
  EXPECT_EQ(error_of("bf16-mixed compute=nvfp4 gradient_rounding=stochastic hadamard=16 weight_block=16x16"),
            "");
}

using Strings = std::vector<std::string>;

TEST(RecipeFields, WithoutEffectAreReported) {
  const auto idle = [](const char* line) { return idle_fields(Policy::parse(line)); };
  EXPECT_EQ(
      idle("bf16-mixed compute=nvfp4 scale_rounding=even"),
      Strings{"scale_rounding=even has no effect: no format in the policy has scales that are powers of "
              "two, as mx formats have"});
  EXPECT_EQ(idle("bf16-mixed gradient_rounding=stochastic"),
            Strings{"gradient_rounding=stochastic has no effect: no format in the policy has scales"});
  const std::string blocks =
      " has no effect: no format in the policy has blocks, as mx formats and nvfp4 have";
  EXPECT_EQ(
      idle("fp8-hybrid weight_block=128x128 activation_block=1x128 hadamard=16"),
      (Strings{"weight_block=128x128" + blocks, "activation_block=1x128" + blocks, "hadamard=16" + blocks}));
  for (const char* line :
       {"fp8-hybrid gradient_rounding=stochastic", "compute=mxfp4 gradient_rounding=stochastic",
        "bf16-mixed scale_rounding=rceil; *.mlp: compute=mxfp8",
        "compute=nvfp4 weight_block=16x16 activation_block=1x128 hadamard=16"})
    EXPECT_EQ(idle(line), Strings{}) << line;
}

}  // namespace
}  // namespace mantissa::precision::recipe_test
