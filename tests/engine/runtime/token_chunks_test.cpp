#include "mantissa/engine/runtime/token_chunks.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/runtime/program.h"

namespace mantissa::runtime::token_chunks_test {
namespace {

using mantissa::testing::Segments;

/// "512+88 closes part": first token and number of tokens; the part of a leaf.
std::vector<std::string> shown(const Extent& run, std::int64_t most) {
  const TokenChunks chunks(run, most);
  std::vector<std::string> all;
  for (const TokenChunk& c : chunks.all()) {
    std::string text = std::to_string(c.first_token) + "+" + std::to_string(c.extent.tokens);
    if (c.leaf)
      text += std::string(c.leaf->opens ? " opens" : "") + (c.leaf->closes ? " closes" : "") + " part";
    if (c.after_leaf) text += " later";
    if (c.last) text += " last";
    all.push_back(text);
  }
  return all;
}

using Texts = std::vector<std::string>;

TEST(TokenChunks, AreWholeLeavesOrEqualPartsOfOne) {
  EXPECT_EQ(shown(Segments({100, 100, 100}).extent(), 256), (Texts{"0+200", "200+100 later last"}));
  EXPECT_EQ(shown(Segments({600, 10}).extent(), 512),
            (Texts{"0+512 opens part", "512+88 closes part", "600+10 later last"}));
  EXPECT_EQ(shown(Segments({1100}).extent(), 1024), (Texts{"0+768 opens part", "768+332 closes part last"}));
}

TEST(TokenChunks, KeepLeavesOfSeveralRowsTogether) {
  EXPECT_EQ(shown(Segments({100, 100, 100, 50}, 2).extent(), 256), (Texts{"0+200", "200+150 later last"}));
  // A part lies within one row.
  EXPECT_EQ(shown(Segments({300, 20, 0, 5}, 3).extent(), 256),
            (Texts{"0+256 opens part", "256+44 part", "300+20 closes part", "320+5 later last"}));
}

TEST(TokenChunks, CountRowsAndPositionsFromTheirOwnStart) {
  const Segments rows({300, 20});
  const TokenChunks chunks(rows.extent(), 256);
  const Extent& second = chunks.all()[1].extent;
  ASSERT_EQ(second.rows.size(), 1U);
  EXPECT_EQ(second.rows[0].begin, 0);
  EXPECT_EQ(second.rows[0].length, 44);
  ASSERT_EQ(second.segments.size(), 1U);
  EXPECT_EQ(second.segments[0].position, 256);
  EXPECT_EQ(chunks.all()[2].extent.first_row, 1);
}

TEST(TokenChunks, OfARunWithoutTokensAreOne) {
  EXPECT_EQ(shown(Segments({}).extent(), 256), (Texts{"0+0 last"}));
}

TEST(TokenChunks, IgnoreRowsThatDoNotCoverTheTokens) {
  const Segments rows({600});
  Extent run = rows.extent();
  const std::vector<Row> last = {{599, 1}};
  run.rows = last;
  EXPECT_EQ(shown(run, 512), (Texts{"0+512 opens part", "512+88 closes part last"}));
}

}  // namespace
}  // namespace mantissa::runtime::token_chunks_test
