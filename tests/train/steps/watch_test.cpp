// Warnings of a run: each once, and only for a reason.
#include "mantissa/train/steps/watch.h"

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

TEST(Watch, IsSilentWhileAHighScaleLooksForItsValue) {
  Watch watch;
  std::int64_t step = 0;
  for (double scale = 0x1p30; scale > 64; scale /= 2)
    EXPECT_TRUE(watch.see(scaled(++step, scale, "a")).empty());
}

TEST(Watch, WarnsOnceThatStepsOverflowAtALowScale) {
  Watch watch;
  EXPECT_TRUE(watch.see(scaled(1, 256, "a")).empty());
  EXPECT_TRUE(watch.see(scaled(2, 256)).empty());
  EXPECT_TRUE(watch.see(scaled(3, 128, "a")).empty());
  const std::vector<Warning> said = watch.see(scaled(9, 64, "a"));
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].str(),
            "the loss scale fell 4x in 9 steps, always a, and steps still overflow at 64: smaller gradients "
            "may become zero");
  EXPECT_TRUE(watch.see(scaled(10, 32, "a")).empty());
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

TEST(Watch, ReportsThatSeveralOpsOverflow) {
  Watch watch;
  double scale = 512;
  std::vector<Warning> said;
  for (std::int64_t step = 1; said.empty() && step < 20; ++step) {
    said = watch.see(scaled(step, scale, step % 2 == 0 ? "a" : "b"));
    scale /= 2;
  }
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].text.find("the loss scale fell 8x in 4 steps, by several ops"), 0U) << said[0].text;
  EXPECT_TRUE(said[0].cures.empty());
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
  const std::vector<Warning> said = watch.see(r);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].str(), "step 2: the loss is nan, but the gradients are finite");
  EXPECT_TRUE(watch.see(r).empty());
}

TEST(Watch, DoesNotCallGradientsFiniteThatAreNot) {
  Watch watch;
  StepReport r = scaled(2, 8);
  r.loss = r.grad_norm = std::nan("");
  const std::vector<Warning> said = watch.see(r);
  ASSERT_EQ(said.size(), 1U);
  EXPECT_EQ(said[0].str(), "step 2: the loss is nan, and the gradients are not finite: the weights are lost");
}

}  // namespace
}  // namespace mantissa::train
