#include "mantissa/engine/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>

#include "mantissa/core/base/error.h"

namespace mantissa::optim::schedule_test {
namespace {

Schedule schedule(ScheduleKind kind, std::int64_t warmup = 10) {
  Schedule s;
  s.kind = kind;
  s.lr = 2.0;
  s.min_lr_ratio = 0.1;
  s.warmup_steps = warmup;
  s.steps = 110;
  return s;
}

TEST(Schedule, WarmsUpInAStraightLine) {
  for (const ScheduleKind kind : {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine}) {
    EXPECT_DOUBLE_EQ(schedule(kind).at(1), 0.2);
    EXPECT_DOUBLE_EQ(schedule(kind).at(5), 1.0);
    EXPECT_DOUBLE_EQ(schedule(kind).at(10), 2.0);
  }
}

TEST(Schedule, OfAContinuedRunGoesOnAfterItsOwnWarmUp) {
  for (const ScheduleKind kind : {ScheduleKind::linear, ScheduleKind::cosine, ScheduleKind::rwkv}) {
    const Schedule whole = schedule(kind);
    Schedule rest = whole;
    rest.earlier = 60;
    for (std::int64_t update = 12; update <= 50; ++update)
      EXPECT_DOUBLE_EQ(rest.at(update), whole.at(60 + update));
    EXPECT_LT(rest.at(1), whole.at(61)) << "its warm-up begins again";
  }
}

TEST(Schedule, EndsAtTheStatedRate) {
  EXPECT_DOUBLE_EQ(schedule(ScheduleKind::constant).at(110), 2.0);
  for (const ScheduleKind kind : {ScheduleKind::linear, ScheduleKind::cosine}) {
    EXPECT_DOUBLE_EQ(schedule(kind).at(60), 2.0 * 0.55) << "half way";
    EXPECT_DOUBLE_EQ(schedule(kind).at(110), 0.2);
    EXPECT_DOUBLE_EQ(schedule(kind).at(500), 0.2) << "past the end";
  }
  EXPECT_DOUBLE_EQ(schedule(ScheduleKind::linear).at(35), 2.0 * (0.1 + 0.9 * 0.75));
  EXPECT_DOUBLE_EQ(schedule(ScheduleKind::cosine).at(35), 2.0 * (0.1 + 0.9 * (0.5 + 0.5 * std::sqrt(0.5))));
}

TEST(Schedule, NeedsNoWarmup) {
  EXPECT_DOUBLE_EQ(schedule(ScheduleKind::constant, 0).at(1), 2.0);
  EXPECT_LT(schedule(ScheduleKind::cosine, 0).at(1), 2.0);
}

TEST(Schedule, MayBeAllWarmup) {
  Schedule s = schedule(ScheduleKind::cosine, 10);
  s.steps = 10;
  EXPECT_DOUBLE_EQ(s.at(10), 2.0);
}

/// From trainer.py of RWKV-LM, which counts steps from 0, computed in Python for lr_init = 6e-4, lr_final =
/// 6e-5, 10 steps of warm-up and an end after 110 steps.
TEST(Schedule, OfRwkvHasTheRatesOfItsTrainer) {
  Schedule s = schedule(ScheduleKind::rwkv, 10);
  s.lr = 6e-4;
  s.min_lr_ratio = 6e-5 / 6e-4;
  const std::pair<std::int64_t, double> expected[] = {{0, 5.999999999999999e-06},
                                                      {1, 6.539999999999999e-05},
                                                      {9, 0.0005405999999999999},
                                                      {10, 0.0006},
                                                      {11, 0.0005998667712987475},
                                                      {35, 0.0005209188309203679},
                                                      {60, 0.00033},
                                                      {109, 6.013322870125249e-05},
                                                      {110, 6.0000000000000015e-05},
                                                      {500, 6.0000000000000015e-05}};
  for (const auto& [step, rate] : expected) EXPECT_DOUBLE_EQ(s.at(step + 1), rate) << "step " << step;
}

TEST(Schedule, OfRwkvMayHaveNoWarmupOrBeAllWarmup) {
  Schedule s = schedule(ScheduleKind::rwkv, 0);
  EXPECT_DOUBLE_EQ(s.at(1), 2.0);
  s.steps = s.warmup_steps = 10;
  EXPECT_DOUBLE_EQ(s.at(1), 0.02);
  EXPECT_DOUBLE_EQ(s.at(10), 2.0 * (0.01 + 0.99 * 0.9));
}

TEST(Schedule, IsNamed) {
  EXPECT_EQ(parse_schedule("rwkv"), ScheduleKind::rwkv);
  EXPECT_EQ(parse_schedule("cosine"), ScheduleKind::cosine);
  EXPECT_EQ(parse_schedule("linear"), ScheduleKind::linear);
  EXPECT_EQ(parse_schedule("constant"), ScheduleKind::constant);
  EXPECT_THROW(parse_schedule("cosin"), ConfigError);
}

}  // namespace
}  // namespace mantissa::optim::schedule_test
