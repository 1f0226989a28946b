#include "mantissa/text/rows/row.h"

#include <gtest/gtest.h>

#include <limits>

#include "mantissa/core/base/error.h"
#include "mantissa/text/rows/dataset.h"

namespace mantissa::text {
namespace {

using Ids = std::vector<std::int32_t>;
using Weights = std::vector<float>;

StepData of(const Row& row, std::int64_t length) {
  StepData step = empty_step(1, length);
  append_row(row, 0, step);
  return step;
}

TEST(Row, PredictsEachLabelAfterTheIdsBeforeIt) {
  const StepData step = of({{5, 6, 7, 8}, {-100, -100, 9, 8}, {4, 3, 2, 1}}, 3);
  EXPECT_EQ(step.ids, (Ids{5, 6, 7, 8}));
  EXPECT_EQ(step.targets, (Ids{-1, 9, 8}));
  EXPECT_EQ(step.weights, (Weights{0, 2, 1}));
  EXPECT_EQ(step.predicted(), 2);
  EXPECT_EQ(step.total_weight(), 3);
}

TEST(Row, WithoutLabelsAndWeightsEqualsARowOfAStream) {
  const StepData row = of({{5, 6, 7, 8}}, 3);
  const StepData stream = Dataset({5, 6, 7, 8}, {.sequence_length = 3, .shuffle = false}, "data").step(1, 1);
  EXPECT_EQ(row.ids, stream.ids);
  EXPECT_EQ(row.predicted(), stream.predicted());
  EXPECT_EQ(row.total_weight(), stream.total_weight());
  EXPECT_EQ(row.targets, Ids(stream.row(0).targets.begin(), stream.row(0).targets.end()));
}

TEST(Row, ThatIsShorterHasNoPadding) {
  StepData step = empty_step(2, 3);
  append_row({{5, 6}}, 0, step);
  append_row({{7, 8, 9}, {-100, -100, 4}}, 1, step);
  EXPECT_EQ(step.ids, (Ids{5, 6, 7, 8, 9}));
  EXPECT_EQ(step.targets, (Ids{6, -1, 4}));
  EXPECT_EQ(step.weights, (Weights{1, 0, 1}));
  EXPECT_EQ(step.tokens(), 3);
  EXPECT_EQ(step.longest(), 2);
  const RowTokens second = step.row(1);
  EXPECT_EQ(Ids(second.ids.begin(), second.ids.end()), (Ids{7, 8}));
  EXPECT_EQ(Ids(second.targets.begin(), second.targets.end()), (Ids{-1, 4}));
  EXPECT_EQ(std::vector(second.weights.begin(), second.weights.end()), (Weights{0, 1}));
  EXPECT_EQ(second.sequence, step.sequence + 1) << "each row has random numbers of its own";
  EXPECT_EQ(step.weight_of(0), 1);
  EXPECT_EQ(step.predicted(1), 1);
}

TEST(Row, ThatDoesNotFitIsRefusedWithItsPlace) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  const auto message = [](const Row& row) -> std::string {
    try {
      check_row(row, 3, 10, "rows[7]");
    } catch (const ConfigError& e) {
      return e.what();
    }
    return {};
  };
  EXPECT_EQ(message({{1, 2, 3, 4}, {-100, 9, 0, 1}, {0, 1, 2, 0.5F}}), "");
  EXPECT_EQ(message({{1, 2}}), "");
  EXPECT_NE(message({{1}}).find("rows[7]: has 1 id;"), std::string::npos);
  EXPECT_NE(message({{1, 2, 3, 4, 5}}).find("at most data.sequence_length + 1 = 4"), std::string::npos);
  EXPECT_NE(message({{1, 10}}).find("ids[1] is 10"), std::string::npos);
  EXPECT_NE(message({{1, -100}}).find("ids[1] is -100"), std::string::npos);
  EXPECT_NE(message({{1, 2}, {1}}).find("2 ids and 1 labels"), std::string::npos);
  EXPECT_NE(message({{1, 2}, {1, -1}}).find("labels[1] is -1"), std::string::npos);
  EXPECT_NE(message({{1, 2}, {}, {1, -1}}).find("weights[1] is -1"), std::string::npos);
  EXPECT_NE(message({{1, 2}, {}, {1, kNan}}).find("weights[1] is nan"), std::string::npos);
}

TEST(RowData, HasAnOrderAndAShareThatIsHeldOutAsAStreamHas) {
  std::vector<Row> rows;
  for (std::int32_t i = 0; i < 10; ++i) rows.push_back({{i, i, i}});
  const Dataset set(rows, {.sequence_length = 4, .shuffle = true, .validation = 0.2, .seed = 3}, "rows");
  EXPECT_EQ(set.training_rows(), 8);
  EXPECT_EQ(set.validation(0, 2).origin, (std::vector<std::int64_t>{8, 9}));
  Ids stream(41);
  const Dataset same(stream, {.sequence_length = 4, .shuffle = true, .validation = 0.2, .seed = 3}, "ids");
  for (std::int64_t step = 1; step < 5; ++step)
    EXPECT_EQ(set.step(step, 3).origin, same.step(step, 3).origin);
}

TEST(RowData, SeparateHeldOutRowsLeaveAllOthersForTraining) {
  Dataset set(Ids(41), {.sequence_length = 4, .shuffle = false, .validation = 0.2}, "ids");
  set.hold_out({{{1, 2, 3}}, {{4, 5}}});
  EXPECT_EQ(set.training_rows(), 10);
  EXPECT_EQ(set.validation_rows(), 2);
  EXPECT_EQ(set.validation(1, 1).targets, (Ids{5}));
}

TEST(RowData, ASourceGivesTheRowsOfEachStepAndTheyAreChecked) {
  std::vector<std::int64_t> asked;
  const RowSource source = [&](std::int64_t step) {
    asked.push_back(step);
    const auto id = static_cast<std::int32_t>(step);
    return std::vector<Row>{{{id, id}}, {{id, id, id}}};
  };
  const Dataset set(source, 10, {.sequence_length = 4}, "source");
  EXPECT_EQ(set.step(7, 2).ids, (Ids{7, 7, 7, 7, 7}));
  EXPECT_EQ(set.step(9, 2).origin, (std::vector<std::int64_t>{16, 17}));
  EXPECT_EQ(asked, (std::vector<std::int64_t>{7, 9}));
  EXPECT_THROW(set.step(1, 3), ConfigError);
  EXPECT_THROW(set.step(10, 2), ConfigError);  // id 10 of a vocabulary of 10
}

TEST(RowData, AStepWithoutAWeightIsAnError) {
  const Dataset masked({{{1, 2}, {-100, -100}}}, {.sequence_length = 4}, "rows");
  EXPECT_THROW(masked.step(1, 1), ConfigError);
  const Dataset weightless({{{1, 2}, {}, {1, 0}}}, {.sequence_length = 4}, "rows");
  EXPECT_THROW(weightless.step(1, 1), ConfigError);
}

}  // namespace
}  // namespace mantissa::text
