#include "mantissa/text/rows/packing.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "mantissa/core/base/error.h"

namespace mantissa::text {
namespace {

using Ids = std::vector<std::int32_t>;
using Lengths = std::vector<std::int64_t>;
using Rows = std::vector<Lengths>;

TEST(Packing, ADocumentJoinsTheFirstRowWithRoom) {
  EXPECT_EQ(pack(Lengths{5, 6, 3, 4, 2, 8}, 10), (Rows{{0, 2, 4}, {1, 3}, {5}}));
}

TEST(Packing, OnlyTheLastRowsAreOpen) {
  EXPECT_EQ(pack(Lengths{5, 9, 5}, 10, 2), (Rows{{0, 2}, {1}}));
  EXPECT_EQ(pack(Lengths{5, 9, 5}, 10, 1), (Rows{{0}, {1}, {2}}));
}

TEST(Packing, EveryDocumentIsInOneRowAndEveryRowFits) {
  Lengths lengths;
  for (std::int64_t i = 0; i < 5000; ++i) lengths.push_back(2 + i * i % 63);
  std::vector<int> seen(lengths.size());
  for (const Lengths& row : pack(lengths, 64, 8)) {
    std::int64_t sum = 0;
    for (const std::int64_t d : row) {
      ++seen[static_cast<std::size_t>(d)];
      sum += lengths[static_cast<std::size_t>(d)];
    }
    EXPECT_LE(sum, 64);
    EXPECT_TRUE(std::ranges::is_sorted(row));
  }
  EXPECT_EQ(seen, std::vector<int>(lengths.size(), 1));
}

TEST(Packing, RefusesDocumentsThatPredictNothingOrDoNotFit) {
  EXPECT_THROW(pack(Lengths{4, 1}, 10), ConfigError);
  EXPECT_THROW(pack(Lengths{4, 11}, 10), ConfigError);
  EXPECT_TRUE(pack(Lengths{}, 10).empty());
}

/// Returns a row of the documents 1 2 3 and 4 5.
Row two_documents() {
  return {.ids = {1, 2, 3, 4, 5}, .documents = {3, 2}};
}

TEST(Packing, NothingPredictsTheFirstIdOfADocument) {
  StepData step = empty_step(1, 6);
  append_row(two_documents(), 0, step);
  EXPECT_EQ(step.ids, (Ids{1, 2, 3, 4, 5}));
  EXPECT_EQ(step.targets, (Ids{2, 3, -1, 5}));
  EXPECT_EQ(step.weights, (std::vector<float>{1, 1, 0, 1}));
  EXPECT_EQ(step.documents, (Rows{{3, 1}}));
}

TEST(Packing, TheLastIdOfARowIsOnlyPredicted) {
  StepData step = empty_step(2, 4);
  append_row({{1, 2}}, 0, step);
  append_row(two_documents(), 1, step);
  EXPECT_EQ(step.documents, (Rows{{}, {3, 1}}));
  EXPECT_EQ(step.row(1).targets.back(), 5);
  EXPECT_TRUE(step.row(0).documents.empty());
}

TEST(Packing, DocumentsThatDoNotCoverTheRowAreRefused) {
  const auto check = [](Lengths documents) { check_row({{1, 2, 3, 4}, {}, {}, documents}, 5, 9, "rows[0]"); };
  EXPECT_NO_THROW(check({2, 2}));
  EXPECT_THROW(check({2}), ConfigError);
  EXPECT_THROW(check({3, 1}), ConfigError);
  EXPECT_THROW(check({2, 3}), ConfigError);
}

}  // namespace
}  // namespace mantissa::text
