// Prompts with the answers of other rows, for kto's estimate of the divergence.
#include <gtest/gtest.h>

#include "mantissa/train/steps/kto_task.h"

namespace mantissa::train {
namespace {

using text::kIgnoredLabel;

TEST(Mismatched, EveryPromptHasTheAnswerOfTheRowBefore) {
  text::StepData rows = text::empty_step(3, 5);
  text::append_row({.ids = {1, 2, 10, 11}, .labels = {kIgnoredLabel, kIgnoredLabel, 10, 11}}, 7, rows);
  text::append_row({.ids = {3, 20}, .labels = {kIgnoredLabel, 20}}, 8, rows);
  // 6 is rendered after the answer, and not predicted.
  text::append_row(
      {.ids = {4, 5, 30, 31, 32, 6}, .labels = {kIgnoredLabel, kIgnoredLabel, 30, 31, 32, kIgnoredLabel}}, 9,
      rows);
  const text::StepData other = mismatched(rows);
  ASSERT_EQ(other.rows, 3);
  EXPECT_EQ(other.ids, (std::vector<std::int32_t>{1, 2, 30, 31, 32, 6, 3, 10, 11, 4, 5, 20}));
  EXPECT_EQ(other.targets, (std::vector<std::int32_t>{-1, 30, 31, 32, -1, 10, 11, -1, 20}));
  EXPECT_EQ(other.origin, rows.origin);
}

TEST(Mismatched, EndsOfLongRowsAreLeftOut) {
  text::StepData rows = text::empty_step(2, 4);
  text::append_row({.ids = {1, 10, 11, 12, 13}, .labels = {kIgnoredLabel, 10, 11, 12, 13}}, 0, rows);
  text::append_row({.ids = {2, 3, 4, 20}, .labels = {kIgnoredLabel, kIgnoredLabel, kIgnoredLabel, 20}}, 1,
                   rows);
  const text::StepData other = mismatched(rows);
  EXPECT_EQ(other.ids, (std::vector<std::int32_t>{1, 20, 2, 3, 4, 10, 11}));
  EXPECT_EQ(other.length(1), 4);
}

}  // namespace
}  // namespace mantissa::train
