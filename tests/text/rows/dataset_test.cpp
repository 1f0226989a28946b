#include "mantissa/text/rows/dataset.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "mantissa/core/base/error.h"
#include "mantissa/text/rows/permutation.h"
#include "text/rows/temp_files.h"

namespace mantissa::text {
namespace {

using Ids = std::vector<std::int32_t>;

Ids counting(std::int32_t n) {
  Ids ids(static_cast<std::size_t>(n));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

Dataset in_order(std::int32_t tokens, std::int64_t length, double validation = 0) {
  return {counting(tokens),
          {.sequence_length = length, .shuffle = false, .validation = validation, .seed = 1},
          "data"};
}

std::vector<std::int64_t> epoch_rows(const Dataset& data, std::int64_t epoch) {
  return data.step(epoch + 1, data.training_rows()).origin;
}

TEST(Dataset, SequenceJHoldsIdsFromJTtoJTplusT) {
  const Dataset data = in_order(31, 10);
  EXPECT_EQ(data.training_rows(), 3);  // ⌊(31 − 1) / 10⌋
  EXPECT_EQ(data.source_counts().front().tokens, 31);
  EXPECT_EQ(in_order(30, 10).training_rows(), 2);
  const StepData step = data.step(1, 2);
  EXPECT_EQ(step.rows, 2);
  EXPECT_EQ(step.sequence_length, 10);
  EXPECT_EQ(step.origin, (std::vector<std::int64_t>{0, 1}));
  Ids expected = counting(11);
  for (std::int32_t id = 10; id <= 20; ++id) expected.push_back(id);  // neighbouring rows share id 10
  EXPECT_EQ(step.ids, expected);
}

TEST(Dataset, WithoutShufflingRowsComeInOrderAndWrapWithinABatch) {
  const Dataset data = in_order(31, 10);
  EXPECT_EQ(data.step(1, 2).origin, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(data.step(2, 2).origin, (std::vector<std::int64_t>{2, 0}));
  EXPECT_EQ(data.step(3, 2).origin, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(data.step(1, 7).origin, (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, 0}));
  EXPECT_EQ(data.step(2, 7).origin, (std::vector<std::int64_t>{1, 2, 0, 1, 2, 0, 1}));
}

TEST(Dataset, StreamsGiveEachPlaceOfTheBatchesSuccessiveRows) {
  const Dataset data(counting(81), {.sequence_length = 10, .shuffle = false, .carries = true}, "data");
  ASSERT_EQ(data.training_rows(), 8);
  const auto expect = [&](std::int64_t step, std::int64_t batch, std::vector<std::int64_t> rows,
                          std::int64_t position) {
    const StepData rows_of = data.step(step, batch);
    EXPECT_EQ(rows_of.origin, rows) << step;
    EXPECT_TRUE(rows_of.carries);
    EXPECT_EQ(rows_of.row(1).position, position) << step;
    EXPECT_EQ(rows_of.row(1).slot, 1) << step;
  };
  expect(1, 3, {0, 2, 4}, 0);  // rows 6 and 7 would be a third of a step
  expect(2, 3, {1, 3, 5}, 10);
  expect(3, 3, {0, 2, 4}, 0);  // the next epoch
  expect(4, 2, {3, 7}, 30);
  EXPECT_FALSE(in_order(81, 10).step(1, 2).carries);
  EXPECT_EQ(in_order(81, 10).step(2, 2).row(0).position, 0);
  EXPECT_THROW(data.step(1, 9), ConfigError);
}

TEST(Dataset, GoesOnAfterEarlierSteps) {
  for (const bool walk : {false, true}) {
    Dataset::Options options{.sequence_length = 10, .shuffle = !walk, .seed = 3, .rwkv_walk = walk};
    const Dataset whole(counting(1250), options, "data");
    options.earlier_steps = 20;  // the second epoch begins at step 29 or 32
    const Dataset rest(counting(1250), options, "data");
    for (std::int64_t step = 1; step <= 20; ++step) {
      EXPECT_EQ(rest.step(step, 4).origin, whole.step(20 + step, 4).origin);
      EXPECT_EQ(rest.step(step, 4).sequence, whole.step(20 + step, 4).sequence) << "keys of random numbers";
    }
    EXPECT_NE(rest.step(1, 4).origin, whole.step(1, 4).origin);
  }
}

TEST(Dataset, HoldsOutTheLastSequencesAtLeastOne) {
  const Dataset tenth = in_order(1001, 10, 0.1);
  EXPECT_EQ(tenth.training_rows(), 90);
  EXPECT_EQ(tenth.validation_rows(), 10);
  EXPECT_EQ(tenth.validation(0, 10).origin.front(), 90);
  EXPECT_EQ(tenth.validation(8, 2).origin, (std::vector<std::int64_t>{98, 99}));
  EXPECT_EQ(tenth.validation(9, 1).ids.back(), 1000);
  EXPECT_EQ(tenth.step(1, 91).origin.back(), 0);  // training wraps before the held-out rows
  EXPECT_EQ(in_order(31, 10, 0.001).validation_rows(), 1);
  EXPECT_EQ(in_order(31, 10, 0).validation_rows(), 0);
  EXPECT_EQ(tenth.validation(10, 0).rows, 0);
  EXPECT_THROW(tenth.validation(9, 2), ConfigError);
  EXPECT_THROW(tenth.validation(-1, 1), ConfigError);
}

TEST(Dataset, AnEpochVisitsEveryRowOnce) {
  const Dataset data(counting(1001), {.sequence_length = 10, .shuffle = true, .validation = 0.1, .seed = 7},
                     "data");
  for (std::int64_t epoch = 0; epoch < 5; ++epoch) {
    const std::vector<std::int64_t> rows = epoch_rows(data, epoch);
    const std::set<std::int64_t> unique(rows.begin(), rows.end());
    EXPECT_EQ(unique.size(), 90U);
    EXPECT_EQ(*unique.begin(), 0);
    EXPECT_EQ(*unique.rbegin(), 89);
  }
}

TEST(Dataset, TheOrderDependsOnSeedAndEpochAndNotOnTheBatchSize) {
  const auto with_seed = [](std::uint64_t seed) {
    return Dataset(counting(1001), {.sequence_length = 10, .shuffle = true, .validation = 0, .seed = seed},
                   "data");
  };
  const Dataset data = with_seed(7);
  EXPECT_EQ(epoch_rows(data, 1), epoch_rows(with_seed(7), 1));
  EXPECT_NE(epoch_rows(data, 0), epoch_rows(data, 1));
  EXPECT_NE(epoch_rows(data, 0), epoch_rows(with_seed(8), 0));
  std::vector<std::int64_t> all = epoch_rows(data, 0);
  const std::vector<std::int64_t> second = epoch_rows(data, 1);
  all.insert(all.end(), second.begin(), second.end());
  for (std::int64_t step = 1; step <= 28; ++step) {  // batches of 7 cross the end of an epoch
    const std::vector<std::int64_t> rows = data.step(step, 7).origin;
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(), all.begin() + (step - 1) * 7)) << "step " << step;
  }
}

TEST(Dataset, ADistantStepCostsNoMoreThanTheFirst) {
  const Dataset data = in_order(31, 10);
  const std::int64_t step = std::int64_t{1} << 60;
  // Row number (2^60 − 1) · 8 mod 3 without overflow: 2^60 ≡ 1, so the row is 0.
  EXPECT_EQ(data.step(step, 8).origin, (std::vector<std::int64_t>{0, 1, 2, 0, 1, 2, 0, 1}));
}

TEST(Dataset, TooLittleDataIsReportedWithTheAmountNeeded) {
  const std::string message = error_of<ConfigError>([] { in_order(10, 10); });
  EXPECT_TRUE(has(message, "10 tokens"));
  EXPECT_TRUE(has(message, "at least 1, that is 11 tokens"));
  EXPECT_TRUE(has(error_of<ConfigError>([] { in_order(0, 10); }), "0 tokens"));
  EXPECT_TRUE(has(error_of<ConfigError>([] { in_order(11, 10, 0.1); }), "at least 2, that is 21 tokens"));
  EXPECT_EQ(in_order(11, 10).training_rows(), 1);
}

TEST(Dataset, RejectsOptionsAndRequestsOutOfRange) {
  EXPECT_TRUE(has(error_of<ConfigError>([] { in_order(31, 0); }), "sequence_length is 0"));
  for (const double share : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_TRUE(has(error_of<ConfigError>([&] { in_order(31, 10, share); }), "data.validation"));
  }
  EXPECT_THROW(in_order(31, 10).step(0, 1), ConfigError);
  EXPECT_THROW(in_order(31, 10).step(1, 0), ConfigError);
}

TEST(Permutation, IsABijectionOfEverySize) {
  for (std::uint64_t size = 1; size <= 300; ++size) {
    const Permutation order(size, 3, size);
    std::set<std::uint64_t> values;
    for (std::uint64_t i = 0; i < size; ++i) values.insert(order(i));
    ASSERT_EQ(values.size(), size);
    ASSERT_LT(*values.rbegin(), size);
  }
}

TEST(Permutation, EveryRowComesFirstEquallyOften) {
  constexpr std::uint64_t kSize = 10, kEpochs = 20000;
  std::vector<double> first(kSize), last(kSize);
  for (std::uint64_t epoch = 0; epoch < kEpochs; ++epoch) {
    const Permutation order(kSize, 11, epoch);
    ++first[order(0)];
    ++last[order(kSize - 1)];
  }
  for (const std::vector<double>& counts : {first, last}) {
    double chi_squared = 0;
    const double expected = static_cast<double>(kEpochs) / kSize;
    for (const double count : counts) chi_squared += (count - expected) * (count - expected) / expected;
    EXPECT_LT(chi_squared, 33.7);  // 9 degrees of freedom, p = 1e-4
  }
}

}  // namespace
}  // namespace mantissa::text
