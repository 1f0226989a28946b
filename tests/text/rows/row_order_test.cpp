#include "mantissa/text/rows/row_order.h"

#include <gtest/gtest.h>

#include "mantissa/text/rows/dataset.h"

namespace mantissa::text {
namespace {

std::vector<Row> rows_of_lengths(const std::vector<std::size_t>& inputs) {
  std::vector<Row> rows;
  for (std::size_t r = 0; r < inputs.size(); ++r)
    rows.push_back({std::vector<std::int32_t>(inputs[r] + 1, static_cast<std::int32_t>(r))});
  return rows;
}

const std::vector<std::size_t> kLengths = {3, 9, 2, 2, 10, 1, 4, 6, 5, 5};

TEST(Packs, KeepTheOrderOfTheRowsAndFillAtMostASequence) {
  for (const bool shuffle : {false, true}) {
    const Dataset packed(rows_of_lengths(kLengths),
                         {.sequence_length = 10, .shuffle = shuffle, .packs = true}, "rows");
    const Dataset plain(rows_of_lengths(kLengths), {.sequence_length = 10, .shuffle = shuffle}, "rows");
    std::vector<std::int64_t> order;
    for (std::int64_t step = 1; step <= 12; ++step) {
      const StepData data = packed.step(step, 2);
      ASSERT_EQ(data.items(), 2);
      EXPECT_EQ(data.sequence, order.size()) << "random numbers are those of the same rows without packs";
      for (std::int64_t u = 0; u < 2; ++u) {
        const std::int64_t first = data.item_row(u), end = data.item_row(u + 1);
        EXPECT_LE(data.begin(end) - data.begin(first), 10);
        EXPECT_GT(end, first);
        if (end < data.rows) {
          EXPECT_GT(data.begin(end + 1) - data.begin(first), 10) << "the next row would fit";
        }
      }
      order.insert(order.end(), data.origin.begin(), data.origin.end());
    }
    EXPECT_EQ(plain.step(1, static_cast<std::int64_t>(order.size())).origin, order);
  }
}

TEST(Packs, OfAStepDoNotDependOnTheStepsThatWereAskedBefore) {
  const Dataset::Options options{.sequence_length = 10, .shuffle = true, .packs = true};
  const Dataset first(rows_of_lengths(kLengths), options, "rows"),
      second(rows_of_lengths(kLengths), options, "rows");
  const StepData late = first.step(9, 2);
  for (std::int64_t step = 1; step < 9; ++step) second.step(step, 2);
  EXPECT_EQ(second.step(9, 2).ids, late.ids);
  EXPECT_EQ(second.step(9, 2).packs, late.packs);
  EXPECT_EQ(first.step(1, 2).ids, second.step(1, 2).ids);
}

TEST(Packs, OfHeldOutRowsHoldThemAllInOrder) {
  Dataset set(rows_of_lengths(kLengths),
              {.sequence_length = 10, .shuffle = false, .validation = 0.4, .packs = true}, "rows");
  const StepData data = set.validation(0, 4);  // 4, 6, 5 and 5 inputs
  EXPECT_EQ(data.packs, (std::vector<std::int64_t>{0, 2, 4}));
  EXPECT_EQ(data.origin, (std::vector<std::int64_t>{6, 7, 8, 9}));
}

}  // namespace
}  // namespace mantissa::text
