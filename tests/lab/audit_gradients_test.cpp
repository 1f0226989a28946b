// The error of gradients that rounding the operands of products explains, parameter by parameter, and the
// findings of those beyond it.
#include "mantissa/lab/audit/expected_gradients.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lab/small_run.h"

namespace mantissa::lab {
namespace {

const Finding* gradient_finding(const Audit& audit) {
  const auto found = std::ranges::find(audit.findings, "gradient", &Finding::kind);
  return found == audit.findings.end() ? nullptr : &*found;
}

/// The expected errors of the run's gradients at a loss of `loss`, by parameter.
std::map<std::string, double> expected(const SmallRun& s, double loss) {
  const train::Trainer trainer(s.config, s.model, s.task->again(s.config), *s.device);
  std::map<std::string, double> errors;
  for (const auto& [name, e] : expected_gradient_errors(trainer.program()))
    errors[name] = e.error(amplification_of_logits(loss, 256));
  return errors;
}

TEST(ExpectedGradients, OfRoundingFollowTheBits) {
  // The mean over a binade of the squared error, 2^-2m / 12, by that of the squared value, 3 / (2 ln 2).
  double squares = 0;
  constexpr int kSteps = 1 << 12;
  for (int i = 0; i < kSteps; ++i) squares += std::exp2(2 * (i + 0.5) / kSteps) / kSteps;
  EXPECT_NEAR(rounding_error(7), std::sqrt(std::exp2(-14) / 12 / squares), 1e-9);
  EXPECT_EQ(rounding_error(1), 64 * rounding_error(7));
}

TEST(ExpectedGradients, LogitsMatterOnceTargetsAreLikely) {
  EXPECT_NEAR(amplification_of_logits(std::log(256), 256), 0, 1e-12) << "equal logits";
  EXPECT_NEAR(amplification_of_logits(std::log(2), 256), std::log(255) / 2, 1e-12);
  EXPECT_EQ(amplification_of_logits(std::numeric_limits<double>::quiet_NaN(), 256), 1);
  EXPECT_TRUE(std::isfinite(amplification_of_logits(0, 256)));
}

/// A coarse weight in the last branch is on the backward path of the branches before it.
TEST(ExpectedGradients, ACoarseOperandCountsOnItsPath) {
  const double start = std::log(256);  // the logits have no effect
  const auto fine = expected(SmallRun("bf16-mixed"), start);
  const auto coarse =
      expected(SmallRun("bf16-mixed", {"model.layers.1.mlp.down_proj: operand=weight compute=mxfp4"}), start);
  const double u = rounding_error(1), added = u * u - rounding_error(7) * rounding_error(7);
  const auto squares = [&](const std::string& name) {
    return std::pow(coarse.at(name), 2) - std::pow(fine.at(name), 2);
  };
  EXPECT_NEAR(squares("model.layers.1.mlp.up_proj.weight"), 2 * added, 1e-6) << "its branch, both passes";
  EXPECT_NEAR(squares("model.layers.0.mlp.up_proj.weight"), added / 2, 1e-6) << "the first of two terms";
  EXPECT_NEAR(squares("model.norm.weight"), 2 * added / 5, 1e-6) << "its input, of five terms";
  const auto all = expected(SmallRun("bf16-mixed compute=mxfp4"), start);
  for (const auto& [name, error] : all) {
    EXPECT_LT(error / fine.at(name), 64) << name << ": attention multiplies in bf16";
    EXPECT_GT(error / fine.at(name), 32) << name;
  }
}

/// A gradient in which another rounding has lost most digits is reported beside one coarse operand too.
TEST(ExpectedGradients, OneCoarseOperandHidesNoLossElsewhere) {
  const std::vector<std::string> rule = {"model.layers.1.mlp.down_proj: operand=weight compute=mxfp4"};
  for (const std::string policy : {"bf16-mixed residual=e5m2", "bf16-mixed kv=e5m2"}) {
    const std::vector<std::string> wide = {"model.initializer_range=0.2"};
    const Audit alone = SmallRun(policy, {}, wide).audit(3), beside = SmallRun(policy, rule, wide).audit(3);
    ASSERT_NE(gradient_finding(alone), nullptr) << policy << "\n" << alone.verdict << list(alone);
    const Finding* f = gradient_finding(beside);
    ASSERT_NE(f, nullptr) << policy << "\n" << beside.verdict << list(beside);
    EXPECT_GT(f->evidence.at("error"), 1.5 * f->evidence.at("expected_error"));
    EXPECT_NE(f->text.find("mostly in mxfp4"), std::string::npos) << f->text;
    EXPECT_NE(f->text.find("parameters are affected: "), std::string::npos) << f->text;
  }
  const Audit healthy = SmallRun("bf16-mixed", rule).audit(3);
  EXPECT_TRUE(healthy.findings.empty()) << list(healthy);
}

}  // namespace
}  // namespace mantissa::lab
