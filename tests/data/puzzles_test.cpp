#include "mantissa/data/puzzles.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace mantissa::data {
namespace {

config::RunConfig config_of(const std::string& data) {
  return config::parse_config(
      "[run]\nsteps = 2\nseed = 7\n[model]\nhidden_size = 16\nintermediate_size = 24\nnum_hidden_layers = 1\n"
      "num_attention_heads = 2\nvocab_size = 256\n[data]\nsource = \"kk\"\n" +
          data,
      "config.toml");
}

TEST(Puzzles, HeldOutOnesAreOfTheSameSizesAndOfTheOtherSplit) {
  const config::RunConfig config = config_of("people_min = 3\npeople_max = 5\n");
  text::KkOptions train = training_puzzles(config), test = held_out_puzzles(config);
  EXPECT_EQ(train.split, text::KkSplit::train);
  EXPECT_EQ(test.split, text::KkSplit::test);
  for (const text::KkOptions* o : {&train, &test}) {
    EXPECT_EQ(o->seed, 7U);
    EXPECT_EQ(o->people_min, 3);
    EXPECT_EQ(o->people_max, 5);
  }
}

TEST(Puzzles, AreDocumentsWithASeparatorAfterEachUpToTheRequestedLength) {
  const std::unique_ptr<text::Tokenizer> bytes = text::make_tokenizer("byte");
  text::KkOptions options = held_out_puzzles();
  options.count = 5;
  const std::vector<std::int32_t> all = puzzle_tokens(options, *bytes);
  EXPECT_EQ(std::ranges::count(all, bytes->separator()), 5);
  EXPECT_EQ(all.back(), bytes->separator());
  const std::vector<std::int32_t> some = puzzle_tokens(options, *bytes, 1);
  EXPECT_EQ(std::ranges::count(some, bytes->separator()), 1);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
}

TEST(Puzzles, AreNamedByOneWord) {
  EXPECT_TRUE(names_puzzles({"kk"}));
  EXPECT_FALSE(names_puzzles({"kk", "kk"}));
  EXPECT_FALSE(names_puzzles({"kk.txt"}));
  EXPECT_FALSE(names_puzzles({}));
}

}  // namespace
}  // namespace mantissa::data
