// Warnings of a run: each once, and only for a reason.
#include "mantissa/train/watch.h"

#include <gtest/gtest.h>

#include <cmath>

namespace mantissa::train {
namespace {

StepReport scaled(std::int64_t step, double scale, const char* scope = nullptr) {
  StepReport r;
  r.step = step;
  r.grad_norm = 1;
  r.loss_scale = scale;
  if (scope != nullptr) {
    r.skipped = true;
    r.overflow = Overflow{"", scope, ""};
  }
  return r;
}

TEST(Watch, WarnsOnceThatTheScaleKeepsFalling) {
  Watch watch;
  EXPECT_TRUE(watch.see(scaled(1, 1024, "a")).empty());
  EXPECT_TRUE(watch.see(scaled(2, 1024)).empty());
  EXPECT_TRUE(watch.see(scaled(3, 512, "a")).empty());
  const std::vector<Warning> said = watch.see(scaled(9, 256, "a"));
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].str(),
            "the loss scale fell 4x in 9 steps, always a. Fix: --resume --rule 'a: compute=f32'");
  EXPECT_TRUE(watch.see(scaled(10, 128, "a")).empty());
}

TEST(Watch, PassesOnACureThatIsNotTheScopesCompute) {
  Watch watch;
  std::vector<Warning> said;
  for (const double scale : {1024, 512, 256}) {
    StepReport step = scaled(1, scale, "a");
    step.overflow->cure = {"--rule", "a: grads=f32"};
    said = watch.see(step);
  }
  ASSERT_EQ(said.size(), 1U);
  ASSERT_EQ(said[0].cures.size(), 1U);
  EXPECT_EQ(said[0].cures[0].arguments, (std::vector<std::string>{"--resume", "--rule", "a: grads=f32"}));
}

TEST(Watch, IsSilentIfTheScaleRisesInBetween) {
  Watch watch;
  double scale = 1024;
  for (std::int64_t step = 1; step < 40; step += 2) {
    EXPECT_TRUE(watch.see(scaled(step, scale, "a")).empty());
    EXPECT_TRUE(watch.see(scaled(step + 1, scale / 2)).empty());
    scale = step % 4 == 1 ? scale : 2 * scale;
  }
}

TEST(Watch, WaitsLongerIfOpsAlternate) {
  Watch watch;
  double scale = 4096;
  std::vector<Warning> said;
  for (std::int64_t step = 1; said.empty() && step < 20; ++step) {
    said = watch.see(scaled(step, scale, step % 2 == 0 ? "a" : "b"));
    scale /= 2;
  }
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].str(),
            "the loss scale fell 64x in 7 steps, by several ops. Fix: --resume --precision bf16-mixed");
}

TEST(Watch, WarnsOnceThatNoWeightMoves) {
  Watch watch;
  StepReport still;
  still.step = 4;
  const std::vector<Warning> said = watch.see(still);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].text.find("step 4: every gradient is 0"), 0U);
  EXPECT_TRUE(watch.see(still).empty());
}

TEST(Watch, BlamesNoFormatIfNoneIsBelowF32) {
  Watch lowered(true), f32(false);
  StepReport still;
  EXPECT_NE(lowered.see(still).at(0).text.find("a format below f32"), std::string::npos);
  const Warning said = f32.see(still).at(0);
  EXPECT_NE(said.text.find("no format is below f32"), std::string::npos);
  EXPECT_TRUE(said.cures.empty());
}

TEST(Watch, WarnsOnceOfANonFiniteLossWithFiniteGradients) {
  Watch watch;
  StepReport r = scaled(2, 8);
  r.loss = std::nan("");
  EXPECT_EQ(watch.see(r).size(), 1U);
  EXPECT_TRUE(watch.see(r).empty());
}

}  // namespace
}  // namespace mantissa::train
