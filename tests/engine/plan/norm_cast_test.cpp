// The order of casts in RMSNorm: which steps round before the gain, to which format, and what a plan says of
// it.
#include <gtest/gtest.h>

#include "engine/plan/planned.h"
#include "mantissa/engine/plan/rounding_points.h"

namespace mantissa::plan::norm_cast_test {
namespace {

Program plan_of(const char* line) {
  return plan_for(precision::Policy::parse(line));
}

std::vector<Scalar> roundings(const Program& p) {
  std::vector<Scalar> all;
  for (const Step& s : p.steps) {
    if (s.op->op == "rmsnorm") all.push_back(s.normalized);
    EXPECT_TRUE(s.op->op == "rmsnorm" || s.normalized == Scalar::f64) << s.op->id;
  }
  return all;
}

bool all_are(const std::vector<Scalar>& formats, Scalar format) {
  return !formats.empty() && std::ranges::all_of(formats, [&](Scalar s) { return s == format; });
}

/// As the modules of transformers, whose input decides.
TEST(NormCast, BeforeTheGainRoundsToTheFormatOfTheNormsInput) {
  EXPECT_TRUE(all_are(roundings(plan_of("bf16-true norm_cast=before-gain")), Scalar::bf16));
  EXPECT_TRUE(all_are(roundings(plan_of("16-true norm_cast=before-gain")), Scalar::f16));
  EXPECT_TRUE(all_are(roundings(plan_of("bf16-mixed norm_cast=before-gain")), Scalar::f64)) << "f32 input";
  EXPECT_TRUE(all_are(roundings(plan_of("bf16-mixed residual=bf16 norm_cast=before-gain")), Scalar::bf16));
  for (const char* line : {"bf16-true", "32-true", "64-true"})
    EXPECT_TRUE(all_are(roundings(plan_of(line)), Scalar::f64));
}

TEST(NormCast, OfARuleIsThatOfItsScopeAndPass) {
  const Program p =
      plan_of("bf16-true; {match = \"model.norm\", pass = \"forward\", norm_cast = \"before-gain\"}");
  EXPECT_EQ(find_step(p, "model.norm", "rmsnorm")->normalized, Scalar::bf16);
  EXPECT_EQ(find_step(p, "model.norm", "rmsnorm", graph::Phase::backward)->normalized, Scalar::f64);
  EXPECT_EQ(find_step(p, "model.layers.0.input_layernorm", "rmsnorm")->normalized, Scalar::f64);
  EXPECT_NE(find_row(plan_rows(p), "model.norm", "rmsnorm").decided_by.find("policy rule 1"),
            std::string::npos);
}

TEST(NormCast, IsARoundingPointOfEachStepThatRounds) {
  const auto points = [](const char* line) {
    const Program p = plan_of(line);
    const std::vector<RoundingPoint> all = rounding_points(p);
    return std::ranges::count(all, RoundingKind::normalized, &RoundingPoint::kind);
  };
  EXPECT_EQ(points("bf16-true"), 0);
  EXPECT_EQ(points("bf16-mixed norm_cast=before-gain"), 0);
  const Program p = plan_of("bf16-true norm_cast=before-gain");
  EXPECT_EQ(points("bf16-true norm_cast=before-gain"), std::ssize(roundings(p)));
  EXPECT_EQ(find_row(plan_rows(p), "model.norm", "rmsnorm").kernel,
            "rmsnorm, rounded to bf16 before the gain");
}

TEST(NormCast, ChangesNothingWithoutANormBelowF32) {
  const graph::Graph graph = model::build_log_prob(mantissa::testing::tiny_llama(false), 16, 16, true);
  const auto idle = [&](const char* line) {
    return idle_rules(lowering_of(graph), precision::Policy::parse(line)).size();
  };
  EXPECT_EQ(idle("bf16-mixed; *: norm_cast=before-gain"), 1U);
  EXPECT_EQ(idle("bf16-true; *: norm_cast=before-gain"), 0U);
}

}  // namespace
}  // namespace mantissa::plan::norm_cast_test
