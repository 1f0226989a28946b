// Loss scales follow the rules of DeepSpeed and PyTorch.
#include "mantissa/precision/policy/loss_scaler.h"

#include <gtest/gtest.h>

#include <cmath>

namespace mantissa::precision {
namespace {

std::vector<bool> flags(const char* text) {
  std::vector<bool> all;
  for (const char* c = text; *c != 0; ++c) {
    if (*c != ' ') all.push_back(*c == '1');
  }
  return all;
}

ScalerOptions from(double initial, std::int64_t window, std::int64_t hysteresis) {
  ScalerOptions options;
  options.initial_scale = initial;
  options.window = window;
  options.hysteresis = hysteresis;
  return options;
}

TEST(LossScaler, FollowsTheGoldenTrace) {
  const ScalerReplay r = replay(from(16, 3, 2), flags("1 1 1 0 0 0 0 1 0 0 0 0 0 0 0 1"));
  EXPECT_EQ(r.scales, (std::vector<double>{16, 8, 4, 4, 4, 4, 8, 8, 8, 8, 8, 16, 16, 16, 32, 32}));
  EXPECT_EQ(r.hysteresis, (std::vector<std::int64_t>{1, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 2, 2, 2, 2, 1}));
  EXPECT_EQ(r.error, "");
}

TEST(LossScaler, StopsAtTheMinimumUnlessDisabled) {
  ScalerOptions options = from(16, 3, 2);
  const ScalerReplay r = replay(options, flags("11111111"));
  EXPECT_EQ(r.scales, (std::vector<double>{16, 8, 4, 2, 1}));
  EXPECT_EQ(r.error,
            "step 6: the gradients overflow and the loss scale is at its minimum of 1; the run stops here");
  options.raise_at_min = false;
  EXPECT_EQ(replay(options, flags("11111111")).scales, (std::vector<double>{16, 8, 4, 2, 1, 1, 1, 1}));
}

TEST(LossScaler, GrowsAfterWindowPlusOneCleanStepsFirst) {
  EXPECT_EQ(replay(from(1, 2, 1), flags("0000000")).scales, (std::vector<double>{1, 1, 2, 2, 4, 4, 8}));
}

TEST(LossScaler, ConsecutiveHysteresisResetsAfterACleanStep) {
  ScalerOptions options = from(16, 1000, 2);
  options.consecutive_hysteresis = true;
  EXPECT_EQ(replay(options, flags("101010")).scales, (std::vector<double>(6, 16)));
  options.consecutive_hysteresis = false;
  EXPECT_EQ(replay(options, flags("101010")).scales, (std::vector<double>{16, 16, 8, 8, 4, 4}));
}

TEST(LossScaler, UnderTorchHalvesAtOnceAndGrowsAfterItsInterval) {
  ScalerOptions options = ScalerOptions::torch();
  EXPECT_EQ(options.initial_scale, 65536);
  EXPECT_EQ(options.window, 2000);
  options.initial_scale = 8;
  options.window = 2;
  EXPECT_EQ(replay(options, flags("0010001111")).scales,
            (std::vector<double>{8, 16, 8, 8, 16, 16, 8, 4, 2, 1}));
}

TEST(LossScaler, AConstantScaleNeverChanges) {
  const ScalerReplay r = replay(ScalerOptions::constant(128), flags("0110111111"));
  EXPECT_EQ(r.scales, std::vector<double>(10, 128));
  EXPECT_EQ(r.error, "");
}

TEST(LossScaler, ContinuesFromAState) {
  const ScalerOptions options = from(16, 3, 2);
  const std::vector<bool> pattern = flags("1 1 1 0 0 0 0 1 0 0 0 0 0 0 0 1");
  const std::vector<double> want = replay(options, pattern).scales;
  for (std::size_t cut = 0; cut < pattern.size(); ++cut) {
    LossScaler first(options);
    for (std::size_t i = 0; i < cut; ++i) first.update(pattern[i]);
    LossScaler second(options);
    second.restore(first.state());
    for (std::size_t i = cut; i < pattern.size(); ++i) {
      second.update(pattern[i]);
      EXPECT_EQ(second.scale(), want[i]) << "cut " << cut << ", step " << i;
    }
  }
}

}  // namespace
}  // namespace mantissa::precision
