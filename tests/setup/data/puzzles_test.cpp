#include "mantissa/setup/data/puzzles.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <csignal>

#include "core/disk/temporary.h"
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
  const std::unique_ptr<tokenizer::Tokenizer> bytes = tokenizer::make_tokenizer("byte");
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

class WrittenPuzzles : public test::TemporaryFolder {};

TEST_F(WrittenPuzzles, AreOneRowOnEachLine) {
  text::KkOptions options;
  options.count = 3;
  write_puzzles(options, folder / "f", false);
  std::string rows;
  for (const text::KkPuzzle& p : text::generate(options)) rows += text::to_jsonl_row(p) + '\n';
  EXPECT_EQ(test::contents_of(folder / "f"), rows);
  EXPECT_NE(test::message_of<FileError>([&] { write_puzzles(options, folder / "f", false); }).find("exists"),
            std::string::npos);
  options.count = 1;
  write_puzzles(options, folder / "f", true);
  EXPECT_LT(test::contents_of(folder / "f").size(), rows.size());
}

// A process limit stands in for a full disk: the write fails midway in the same way.
TEST_F(WrittenPuzzles, AFullDiskKeepsTheOldFileAndLeavesNoOther) {
  test::put(folder / "f", "old");
  text::KkOptions options;
  options.count = 500;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = ::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{1 << 14, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string message =
      test::message_of<ResourceError>([&] { write_puzzles(options, folder / "f", true); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, handler);
  EXPECT_NE(message.find("exceeds the file size limit"), std::string::npos) << message;
  EXPECT_EQ(test::contents_of(folder / "f"), "old");
  EXPECT_FALSE(std::filesystem::exists(folder / "f.partial"));
}

}  // namespace
}  // namespace mantissa::data
