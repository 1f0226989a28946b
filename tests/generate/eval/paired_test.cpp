// Changes between two evaluations, against values computed by hand.
#include "mantissa/generate/eval/paired.h"

#include <gtest/gtest.h>

#include <cmath>

namespace mantissa::eval {
namespace {

/// A few operations on numbers near 1.
constexpr double kRounding = 1e-14;

Evaluation of_rows(std::vector<RowLoss> rows) {
  Evaluation e;
  e.rows = std::move(rows);
  return e;
}

Evaluation of_words(std::vector<LastWord> words) {
  Evaluation e;
  e.last_words.words = std::move(words);
  return e;
}

TEST(PairedChange, OfTheLossIsTheMeanOverRowsWithItsStandardError) {
  const Evaluation a = of_rows({{1, 10}, {5, 10}, {2, 10}}), b = of_rows({{1.1, 10}, {5.3, 10}, {2.2, 10}});
  const PairedChange change = paired_change(a, b);
  ASSERT_TRUE(change.loss && change.loss->standard_error);
  EXPECT_NEAR(change.loss->difference, 0.2, kRounding);
  // The differences 0.1, 0.3, 0.2 have the standard deviation 0.1; the losses themselves differ by far more.
  EXPECT_NEAR(*change.loss->standard_error, 0.1 / std::sqrt(3.0), kRounding);
  EXPECT_EQ(change.loss->pairs, 3);
  EXPECT_FALSE(change.accuracy);
  EXPECT_FALSE(change.word_log_prob);
}

TEST(PairedChange, WeightsARowByItsTokens) {
  const PairedChange change = paired_change(of_rows({{1, 30}, {1, 10}}), of_rows({{2, 30}, {1, 10}}));
  EXPECT_NEAR(change.loss->difference, 0.75, kRounding);
  // Parts 30 · 0.25 and 10 · −0.75 of 40, times √(2 / 1).
  EXPECT_NEAR(*change.loss->standard_error, std::sqrt(2.0 * (56.25 + 56.25)) / 40, kRounding);
}

TEST(PairedChange, OfOnePairHasNoStandardError) {
  const PairedChange change = paired_change(of_rows({{1, 8}}), of_rows({{3, 8}}));
  EXPECT_EQ(change.loss->difference, 2);
  EXPECT_FALSE(change.loss->standard_error);
}

TEST(PairedChange, CountsWordsThatOnlyOneHasRight) {
  const Evaluation a = of_words({{true, -1}, {true, -2}, {false, -3}, {false, -4}}),
                   b = of_words({{true, -1}, {false, -2.5}, {true, -3}, {true, -3}});
  const PairedChange change = paired_change(a, b);
  EXPECT_EQ(change.gained, 2);
  EXPECT_EQ(change.lost, 1);
  EXPECT_NEAR(change.accuracy->difference, 0.25, kRounding);
  // Differences 0, −1, 1, 1 around 0.25: squares 0.0625, 1.5625, 0.5625, 0.5625.
  EXPECT_NEAR(*change.accuracy->standard_error, std::sqrt(2.75 / 3 / 4), kRounding);
  EXPECT_NEAR(change.word_log_prob->difference, 0.125, kRounding);
  EXPECT_FALSE(change.loss);
}

TEST(PairedChange, ComparesWhatBothHaveCompleted) {
  const PairedChange change = paired_change(of_words({{true, -1}, {true, -1}}), of_words({{true, -2}}));
  EXPECT_EQ(change.word_log_prob->pairs, 1);
  EXPECT_EQ(change.word_log_prob->difference, -1);
  EXPECT_EQ(change.lost, 0);
}

TEST(PairedChange, OfEqualEvaluationsIsZero) {
  const Evaluation a = of_rows({{1.7, 3}, {2.9, 3}});
  const PairedChange change = paired_change(a, a);
  EXPECT_EQ(change.loss->difference, 0);
  EXPECT_EQ(*change.loss->standard_error, 0);
}

}  // namespace
}  // namespace mantissa::eval
