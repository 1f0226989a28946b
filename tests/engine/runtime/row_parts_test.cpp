// The parts of a row that ranks have: every token once, at its position in its document.
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/runtime/batch.h"

namespace mantissa::runtime::row_parts_test {
namespace {

struct Token {
  std::int64_t position;
  std::uint64_t sequence;
  std::int32_t target;
  float weight;
  bool operator==(const Token&) const = default;
};

/// Adds the tokens of a batch by their ids, which are different.
void add_tokens(const Batch& batch, std::map<std::int32_t, Token>& all) {
  for (const Segment& s : batch.extent().segments) {
    for (std::int64_t t = 0; t < s.length; ++t) {
      const auto at = static_cast<std::size_t>(s.begin + t);
      const bool added = all.emplace(batch.ids()[at], Token{s.position + t, s.sequence, batch.targets()[at],
                                                            batch.weights()[at]})
                             .second;
      EXPECT_TRUE(added) << "token " << batch.ids()[at] << " twice";
    }
  }
}

TEST(RowParts, AreAllTokensOfARowOnceWithWhatTheyHaveInTheWholeOne) {
  for (const std::vector<std::int64_t>& documents :
       {std::vector<std::int64_t>{}, {23}, {1, 1, 20, 1}, {5, 6, 7, 5}, {12, 11}}) {
    constexpr std::int64_t kLength = 23;
    std::vector<std::int32_t> ids(kLength), targets(kLength);
    std::iota(ids.begin(), ids.end(), 0);
    std::iota(targets.begin(), targets.end(), 100);
    targets[7] = -1;
    std::vector<float> weights(kLength);
    std::iota(weights.begin(), weights.end(), 1.0F);
    const RowTokens row{ids, targets, weights, documents, 9};
    std::map<std::int32_t, Token> whole;
    Batch batch;
    batch.add(row);
    add_tokens(batch, whole);
    for (const int parts : {2, 3, 5, 11}) {
      std::map<std::int32_t, Token> all;
      for (int part = 0; part < parts; ++part) {
        Batch own;
        own.add_part(row, part, parts);
        own.add_part({.ids = std::vector<std::int32_t>(4 * parts, 50),
                      .targets = std::vector<std::int32_t>(4 * parts, 1)},
                     part, parts);
        EXPECT_EQ(own.rows(), 2) << "both blocks are one row";
        EXPECT_LE(own.extent().rows[0].length, 2 * ((kLength + 2 * parts - 1) / (2 * parts)));
        Batch first;
        first.add_part(row, part, parts);
        add_tokens(first, all);
      }
      EXPECT_EQ(all, whole) << parts << " parts";
    }
  }
}

/// Every rank has two tokens of every row.
TEST(RowParts, OfAShortRowArePaddedWithoutTargets) {
  const std::vector<std::int32_t> ids = {10, 11, 12}, targets = {20, 21, 22};
  const std::vector<std::int64_t> documents = {2, 1};
  std::map<std::int32_t, std::int64_t> positions;
  for (int part = 0; part < 4; ++part) {
    Batch batch;
    batch.add_part({.ids = ids, .targets = targets, .documents = documents}, part, 4);
    ASSERT_EQ(batch.tokens(), 2);
    const std::vector<std::int64_t> of_row = {part, 7 - part};
    for (std::size_t t = 0; t < 2; ++t) {
      const bool padding = of_row[t] >= 3;
      EXPECT_EQ(batch.targets()[t], padding ? -1 : targets[static_cast<std::size_t>(of_row[t])]);
      EXPECT_EQ(batch.weights()[t], padding ? 0 : 1);
    }
    for (const Segment& s : batch.extent().segments) {
      const std::int64_t first = of_row[static_cast<std::size_t>(s.begin)];
      EXPECT_EQ(s.position, first < 2 ? first : first - 2) << "the padding continues the last document";
    }
  }
}

}  // namespace
}  // namespace mantissa::runtime::row_parts_test
