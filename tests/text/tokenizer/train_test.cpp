// Training of byte-level BPE: the order of merges, ties, threads, and the written file.
#include <gtest/gtest.h>

#include <algorithm>

#include "mantissa/core/base/error.h"
#include "mantissa/text/tokenizer/tokenizer.h"
#include "mantissa/text/tokenizer/train.h"
#include "text/rows/temp_files.h"

namespace mantissa::tokenizer {
namespace {

using text::error_of;
using text::has;

constexpr std::int64_t kBytes = 256;

/// Returns the tokens of the merges, in order.
std::vector<std::string> merged(const WordCounts& words, std::int64_t merges) {
  const TrainedBpe bpe = train_bpe(words, kBytes + merges);
  return {bpe.tokens.begin() + kBytes, bpe.tokens.end()};
}

using Tokens = std::vector<std::string>;

TEST(TrainBpe, MergesTheMostFrequentPairFirst) {
  // bc occurs 7 times; then a with bc 5 times, and bc with d 2 times.
  EXPECT_EQ(merged({{"abc", 5}, {"bcd", 2}}, 10), (Tokens{"bc", "abc", "bcd"}));
}

TEST(TrainBpe, OfEquallyFrequentPairsMergesTheSmallestIds) {
  EXPECT_EQ(merged({{"yz", 3}, {"ab", 3}, {"az", 3}}, 3), (Tokens{"ab", "az", "yz"}));
  // The space is the character U+0120, so its id is larger than those of letters.
  EXPECT_EQ(merged({{" a", 3}, {"zz", 3}}, 2), (Tokens{"zz", " a"}));
}

TEST(TrainBpe, CountsOverlappingPairsAsTheLibraryDoes) {
  // "aaaa" has three pairs aa; merging from the left gives aa aa.
  EXPECT_EQ(merged({{"aaaa", 1}, {"bb", 2}}, 3), (Tokens{"aa", "bb", "aaaa"}));
}

TEST(TrainBpe, GivesOneIdToATokenThatTwoPairsSpell) {
  // ab c and a bc: both pairs are merges, and abc is one token.
  const TrainedBpe bpe = train_bpe({{"abx", 9}, {"bcy", 8}, {"abc", 7}, {"bc", 9}, {"zabc", 1}}, 1000);
  EXPECT_EQ(std::count(bpe.tokens.begin(), bpe.tokens.end(), "abc"), 1);
  for (const auto& [a, b] : bpe.merges) {
    const std::string token =
        bpe.tokens[static_cast<std::size_t>(a)] + bpe.tokens[static_cast<std::size_t>(b)];
    EXPECT_NE(std::find(bpe.tokens.begin(), bpe.tokens.end(), token), bpe.tokens.end());
  }
}

TEST(TrainBpe, BeginsWithSpecialTokensAndAllBytes) {
  const std::vector<std::string> special = {"<|end|>"};
  const TrainedBpe bpe = train_bpe({{"ab", 1}}, 258, special);
  EXPECT_EQ(bpe.tokens.size(), 258U);
  EXPECT_EQ(bpe.tokens.front(), "<|end|>");
  EXPECT_EQ(bpe.tokens.back(), "ab");
  EXPECT_EQ(bpe.merges.size(), 1U);
  EXPECT_TRUE(has(error_of<ConfigError>([&] { train_bpe({}, 256, special); }), "at least 257"));
  EXPECT_EQ(train_bpe({}, 257, special).tokens.size(), 257U);
}

TEST(CountWords, SplitsLinesByThePatternOfGpt2) {
  WordCounts counts;
  count_words("it's  two\n\n12 a\xFF", 1, counts);
  const WordCounts expected = {{"it", 1}, {"'s", 1}, {" ", 1},  {" two", 1},
                               {"\n", 2}, {"12", 1}, {" a", 1}, {"\xEF\xBF\xBD", 1}};
  EXPECT_EQ(counts, expected);
  count_words("12", 1, counts);
  EXPECT_EQ(counts["12"], 2);
  count_words("", 1, counts);
}

TEST(CountWords, CountsTheSameWithAnyNumberOfThreads) {
  std::string lines;
  for (int i = 0; i < 5000; ++i)
    lines += "line " + std::to_string(i % 97) + (i % 3 == 0 ? "\n\n" : " größer\n");
  WordCounts one;
  count_words(lines, 1, one);
  for (const int threads : {2, 3, 16, 0}) {
    WordCounts several;
    count_words(lines, threads, several);
    EXPECT_EQ(several, one) << threads;
  }
}

TEST(TokenizerJson, OfATrainedVocabularyIsReadBack) {
  text::TempFiles files;
  std::string lines;
  for (int i = 0; i < 200; ++i) lines += "the tokenizer of number " + std::to_string(i * i) + ", größer\n";
  WordCounts words;
  count_words(lines, 2, words);
  const std::vector<std::string> special = {"<|endoftext|>"};
  const TrainedBpe bpe = train_bpe(words, 400, special);
  const auto tokenizer = make_tokenizer(files.write("tokenizer.json", tokenizer_json(bpe, 1)));
  EXPECT_EQ(tokenizer->vocabulary(), 400);
  EXPECT_EQ(tokenizer->separator(), 0);
  const std::vector<std::int32_t> ids = tokenizer->encode(lines);
  EXPECT_LT(ids.size() * 3, lines.size());
  EXPECT_EQ(tokenizer->decode(ids), lines);
  EXPECT_EQ(tokenizer->encode("<|endoftext|>"), std::vector<std::int32_t>{0});
  // A frequent word is one token, and so is every byte.
  EXPECT_EQ(tokenizer->encode(" tokenizer").size(), 1U);
  for (int byte = 0; byte < 128; ++byte)
    EXPECT_EQ(tokenizer->encode(std::string(1, static_cast<char>(byte))).size(), 1U) << byte;
}

}  // namespace
}  // namespace mantissa::tokenizer
