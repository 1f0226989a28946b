#include "mantissa/setup/data/generated.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "mantissa/core/base/error.h"

namespace mantissa::data {
namespace {

config::RunConfig config_of(const std::string& data) {
  return config::parse_config(
      "[run]\nsteps = 2\nseed = 7\n[model]\nhidden_size = 16\nintermediate_size = 24\nnum_hidden_layers = 1\n"
      "num_attention_heads = 2\nvocab_size = 256\n[data]\nsource = \"kk\"\n" +
          data,
      "config.toml");
}

TEST(GeneratedRows, HeldOutOnesAreOfTheSameSizesAndOfTheOtherSplit) {
  const config::RunConfig config = config_of("people_min = 3\npeople_max = 5\n");
  const text::GeneratedRows train = training_rows(config), test = held_out_rows(config);
  EXPECT_FALSE(train.held_out);
  EXPECT_TRUE(test.held_out);
  for (const text::GeneratedRows* o : {&train, &test}) {
    EXPECT_EQ(o->seed, 7U);
    EXPECT_EQ(o->people_min, 3);
    EXPECT_EQ(o->people_max, 5);
  }
}

TEST(GeneratedRows, AreDocumentsWithASeparatorAfterEachUpToTheRequestedLength) {
  const std::unique_ptr<tokenizer::Tokenizer> bytes = tokenizer::make_tokenizer("byte");
  text::GeneratedRows rows = held_out_rows();
  rows.count = 5;
  const std::vector<std::int32_t> all = generated_tokens(rows, *bytes);
  EXPECT_EQ(std::ranges::count(all, bytes->separator()), 5);
  EXPECT_EQ(all.back(), bytes->separator());
  const std::vector<std::int32_t> some = generated_tokens(rows, *bytes, 1);
  EXPECT_EQ(std::ranges::count(some, bytes->separator()), 1);
  EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin()));
}

TEST(GeneratedRows, AreNamedByOneWord) {
  EXPECT_TRUE(is_generated({"kk"}));
  EXPECT_FALSE(is_generated({"kk", "kk"}));
  EXPECT_FALSE(is_generated({"kk.txt"}));
  EXPECT_FALSE(is_generated({}));
}

}  // namespace
}  // namespace mantissa::data
