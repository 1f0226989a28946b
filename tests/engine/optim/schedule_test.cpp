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

TEST(Schedule, IsNamed) {
  EXPECT_EQ(parse_schedule("cosine"), ScheduleKind::cosine);
  EXPECT_EQ(parse_schedule("linear"), ScheduleKind::linear);
  EXPECT_EQ(parse_schedule("constant"), ScheduleKind::constant);
  EXPECT_THROW(parse_schedule("cosin"), ConfigError);
}

}  // namespace
}  // namespace mantissa::optim::schedule_test
