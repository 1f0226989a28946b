#include "mantissa/engine/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

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
  for (const ScheduleKind kind : {ScheduleKind::constant, ScheduleKind::linear, ScheduleKind::cosine,
                                  ScheduleKind::wsd, ScheduleKind::inverse_sqrt}) {
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

struct Rate {
  std::int64_t update;
  double lr;
};

/// The rates of get_wsd_schedule of transformers 5.24 at step `update`, with 10 steps of warm-up, 30 of decay
/// and 110 in all, times 2.
TEST(Schedule, ThatIsStableUntilItsEndIsThatOfTransformers) {
  struct Course {
    const char* name;
    std::vector<Rate> rates;
  };
  const Course courses[] = {
      {"linear", {{81, 1.94}, {85, 1.7}, {90, 1.4000000000000001}, {95, 1.1}, {100, 0.8}, {109, 0.26}}},
      {"cosine",
       {{81, 1.995069705831446},
        {85, 1.8794228634059948},
        {90, 1.55},
        {95, 1.1},
        {100, 0.6500000000000002},
        {109, 0.20493029416855404}}},
      {"1-sqrt",
       {{81, 1.6713664654969003},
        {85, 1.2651530771650465},
        {90, 0.9607695154586737},
        {95, 0.7272077938642143},
        {100, 0.5303061543300931},
        {109, 0.23025425554968498}}}};
  for (const Course& course : courses) {
    Schedule s = schedule(ScheduleKind::wsd);
    s.decay_steps = 30;
    s.decay = parse_decay(course.name);
    for (const Rate& r : {Rate{5, 1.0}, {10, 2.0}, {11, 2.0}, {60, 2.0}, {80, 2.0}, {110, 0.2}, {130, 0.2}})
      EXPECT_DOUBLE_EQ(s.at(r.update), r.lr) << course.name << " at " << r.update;
    for (const Rate& r : course.rates)
      EXPECT_DOUBLE_EQ(s.at(r.update), r.lr) << course.name << " at " << r.update;
  }
}

TEST(Schedule, ThatIsStableDecaysInItsLastTenth) {
  Schedule s = schedule(ScheduleKind::wsd);
  s.decay = DecayCourse::linear;
  EXPECT_DOUBLE_EQ(s.at(99), 2.0);
  EXPECT_DOUBLE_EQ(s.at(100), 2.0 * (0.1 + 0.9 * 10 / 11));
  s.decay_steps = 1000;  // from the end of the warm-up on
  EXPECT_DOUBLE_EQ(s.at(10), 2.0);
  EXPECT_DOUBLE_EQ(s.at(35), 2.0 * (0.1 + 0.9 * 0.75));
  s.steps = s.warmup_steps;
  EXPECT_DOUBLE_EQ(s.at(10), 2.0);
  EXPECT_DOUBLE_EQ(s.at(11), 0.2);
}

TEST(Schedule, ThatIsStableContinuesAnotherRun) {
  const Schedule whole = [] {
    Schedule s = schedule(ScheduleKind::wsd, 0);
    s.decay_steps = 40;
    return s;
  }();
  Schedule rest = whole;
  rest.earlier = 60;
  for (std::int64_t update = 1; update <= 50; ++update)
    EXPECT_DOUBLE_EQ(rest.at(update), whole.at(60 + update));
}

/// The rates of get_inverse_sqrt_schedule of transformers 5.24 at step `update`, times 2.
TEST(Schedule, OfTheInverseSquareRootIsThatOfTransformers) {
  struct Case {
    std::int64_t warmup, timescale;
    std::vector<Rate> rates;
  };
  const Case cases[] = {
      {10,
       0,
       {{5, 1.0},
        {10, 2.0},
        {11, 1.9069251784911845},
        {60, 0.8164965809277261},
        {81, 0.7027283689263065},
        {130, 0.5547001962252291}}},
      {0, 0, {{5, 1.999500187421909}, {60, 1.9940268657049436}, {130, 1.9871253923137029}}},
      {10, 40, {{10, 2.0}, {11, 1.9754591932991794}, {60, 1.3333333333333333}, {130, 1.0}}}};
  for (const Case& c : cases) {
    Schedule s = schedule(ScheduleKind::inverse_sqrt, c.warmup);
    s.min_lr_ratio = 0;
    s.timescale = c.timescale;
    for (const Rate& r : c.rates) EXPECT_DOUBLE_EQ(s.at(r.update), r.lr) << c.warmup << " at " << r.update;
  }
  Schedule s = schedule(ScheduleKind::inverse_sqrt, 1);
  EXPECT_DOUBLE_EQ(s.at(100), 0.2);
  EXPECT_DOUBLE_EQ(s.at(1'000'000), 0.2) << "not below min_lr_ratio";
}

TEST(Schedule, IsNamed) {
  EXPECT_EQ(parse_schedule("wsd"), ScheduleKind::wsd);
  EXPECT_EQ(parse_schedule("inverse-sqrt"), ScheduleKind::inverse_sqrt);
  EXPECT_THROW(parse_decay("sqrt"), ConfigError);
  EXPECT_EQ(parse_schedule("rwkv"), ScheduleKind::rwkv);
  EXPECT_EQ(parse_schedule("cosine"), ScheduleKind::cosine);
  EXPECT_EQ(parse_schedule("linear"), ScheduleKind::linear);
  EXPECT_EQ(parse_schedule("constant"), ScheduleKind::constant);
  EXPECT_THROW(parse_schedule("cosin"), ConfigError);
}

}  // namespace
}  // namespace mantissa::optim::schedule_test
