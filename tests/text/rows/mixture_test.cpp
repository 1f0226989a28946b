#include "mantissa/text/rows/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "mantissa/core/base/error.h"
#include "mantissa/text/rows/dataset.h"
#include "text/rows/temp_files.h"

namespace mantissa::text {
namespace {

TEST(Mixture, EachBlockHasTheSharesToOneRowPerSource) {
  const std::vector<double> weights = {0.7, 0.2, 0.05, 0.05};
  const Mixture mixture(weights, 3);
  std::vector<std::int64_t> counts(weights.size());
  for (std::int64_t row = 0; row < 20 * Mixture::kBlock; ++row) {
    ++counts[mixture.at(row).source];
    if ((row + 1) % Mixture::kBlock != 0) continue;
    for (std::size_t s = 0; s < weights.size(); ++s) {
      // Each of the (at most 3) divisions before a source rounds by at most a half.
      EXPECT_NEAR(static_cast<double>(counts[s]), weights[s] * static_cast<double>(row + 1), 1.5);
    }
  }
}

TEST(Mixture, EachSourceGivesItsRowsOnceInBlocks) {
  const Mixture mixture({3, 1}, 5);
  for (std::int64_t block = 0; block < 3; ++block) {
    std::vector<std::int64_t> numbers[2];
    for (std::int64_t i = 0; i < Mixture::kBlock; ++i) {
      const MixedRow row = mixture.at(block * Mixture::kBlock + i);
      numbers[row.source].push_back(row.number);
    }
    for (std::size_t s = 0; s < 2; ++s) {
      std::ranges::sort(numbers[s]);
      const auto count = std::ssize(numbers[s]);
      EXPECT_EQ(count, s == 0 ? 768 : 256);
      for (std::int64_t i = 0; i < count; ++i)
        EXPECT_EQ(numbers[s][static_cast<std::size_t>(i)], block * count + i);
    }
  }
}

TEST(Mixture, TheOrderDependsOnTheSeedAndIsMixed) {
  const Mixture a({1, 1}, 1), b({1, 1}, 2);
  int different = 0, longest = 0, run = 0;
  for (std::int64_t row = 0; row < Mixture::kBlock; ++row) {
    different += a.at(row).source != b.at(row).source ? 1 : 0;
    run = row > 0 && a.at(row).source == a.at(row - 1).source ? run + 1 : 1;
    longest = std::max(longest, run);
  }
  EXPECT_GT(different, 300);
  EXPECT_GT(longest, 3) << "the sources do not alternate";
  EXPECT_LT(longest, 40) << "the sources do not come in long runs";
}

TEST(Mixture, WeightsMustBePositive) {
  for (const double weight : {0.0, -1.0, std::nan(""), HUGE_VAL})
    EXPECT_THROW(Mixture({1, weight}, 1), ConfigError);
}

Dataset mixed(std::vector<double> weights, double validation = 0, std::uint64_t seed = 1) {
  std::vector<Dataset::WeightedRows> parts;
  std::int32_t first = 0;
  for (const double weight : weights) {
    std::vector<std::int32_t> ids;
    for (std::int32_t i = 0; i < 101; ++i) ids.push_back(first + i);
    first += 1000;
    parts.push_back({sequences(Corpus(ids), 10), weight, "part"});
  }
  return {std::move(parts),
          {.sequence_length = 10, .shuffle = true, .validation = validation, .seed = seed},
          "all"};
}

TEST(MixedData, EverySourceHasItsOwnEpochsAndOrder) {
  const Dataset data = mixed({3, 1});
  EXPECT_EQ(data.training_rows(), 20);
  std::vector<std::int64_t> counts(20);
  for (const std::int64_t row : data.step(1, Mixture::kBlock).origin) ++counts[static_cast<std::size_t>(row)];
  for (std::size_t r = 0; r < 20; ++r) {
    const double epochs = r < 10 ? 76.8 : 25.6;  // of 10 rows each
    EXPECT_NEAR(static_cast<double>(counts[r]), epochs, 1) << "row " << r;
  }
}

TEST(MixedData, TheRowsOfAStepDependOnlyOnItsNumber) {
  const Dataset data = mixed({2, 1, 1});
  const std::vector<std::int64_t> all = data.step(1, 2100).origin;
  for (std::int64_t step = 1; step <= 300; ++step) {
    const std::vector<std::int64_t> rows = data.step(step, 7).origin;
    EXPECT_TRUE(std::equal(rows.begin(), rows.end(), all.begin() + (step - 1) * 7)) << "step " << step;
  }
  EXPECT_NE(mixed({2, 1, 1}, 0, 2).step(1, 100).origin, data.step(1, 100).origin);
}

TEST(MixedData, EverySourceHoldsOutItsLastRows) {
  const Dataset data = mixed({1, 1}, 0.2);
  EXPECT_EQ(data.training_rows(), 16);
  EXPECT_EQ(data.validation(0, 4).origin, (std::vector<std::int64_t>{8, 9, 18, 19}));
  EXPECT_EQ(data.validation(1, 2).origin, (std::vector<std::int64_t>{9, 18}));
  EXPECT_EQ(data.training(7, 2).origin, (std::vector<std::int64_t>{7, 10}));
  for (const std::int64_t row : data.step(1, 500).origin) EXPECT_LT(row % 10, 8);
}

TEST(MixedData, ASourceWithoutARowIsNamed) {
  std::vector<Dataset::WeightedRows> parts = {{sequences(Corpus({1, 2, 3}), 2), 1, "a.txt"},
                                              {sequences(Corpus({1, 2}), 2), 1, "b.txt"}};
  const std::string message =
      error_of<ConfigError>([&] { Dataset(std::move(parts), {.sequence_length = 2}, "all"); });
  EXPECT_TRUE(has(message, "b.txt: 2 tokens form 0 sequences"));
}

Corpus documents(const std::vector<std::int64_t>& lengths) {
  Corpus corpus;
  std::int32_t id = 0;
  for (const std::int64_t length : lengths) {
    corpus.begin_document();
    for (std::int64_t i = 0; i < length; ++i) corpus.append(id++);
  }
  return corpus;
}

TEST(PackedData, EveryTokenThatFollowsAnotherOfItsDocumentIsPredictedOnce) {
  const std::vector<std::int64_t> lengths = {3, 25, 1, 8, 2, 2, 11, 5};
  const Dataset data(std::vector<Dataset::WeightedRows>{{packed(documents(lengths), 8)}},
                     {.sequence_length = 8, .shuffle = false}, "data");
  const StepData rows = data.training(0, data.training_rows());
  std::vector<std::int32_t> predicted;
  ASSERT_EQ(rows.items(), data.training_rows());
  for (std::int64_t pack = 0; pack < rows.items(); ++pack) {
    EXPECT_LE(rows.begin(rows.item_row(pack + 1)) - rows.begin(rows.item_row(pack)), 8);
  }
  for (std::int64_t r = 0; r < rows.rows; ++r) {
    const RowTokens row = rows.row(r);
    EXPECT_TRUE(row.documents.empty()) << "a row is one document";
    for (std::size_t t = 0; t < row.ids.size(); ++t) {
      EXPECT_EQ(row.targets[t], row.ids[t] + 1) << "the token after its input";
      predicted.push_back(row.targets[t]);
    }
  }
  std::ranges::sort(predicted);
  std::vector<std::int32_t> want;
  std::int32_t id = 0;
  for (const std::int64_t length : lengths) {
    for (std::int64_t i = 0; i < length; ++i, ++id) {
      if (i > 0) want.push_back(id);
    }
  }
  EXPECT_EQ(predicted, want);
  EXPECT_EQ(data.document_lengths(), lengths);
}

}  // namespace
}  // namespace mantissa::text
