// Needles in haystacks: the prompts, and what counts as an answer.
#include "mantissa/generate/eval/needle.h"

#include <gtest/gtest.h>

#include "generate/eval/tiny_model.h"
#include "mantissa/core/base/error.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::eval {
namespace {

std::string haystack() {
  std::string text;
  for (int i = 0; i < 40; ++i) text += "Sentence number " + std::to_string(i) + " is here. ";
  return text;
}

std::string text_at(std::int64_t length, double depth, std::int64_t trial = 0) {
  const auto tokenizer = tokenizer::make_tokenizer("byte");
  const NeedlePrompt prompt = needle_prompt(*tokenizer, haystack(), length, depth, 7, trial);
  EXPECT_EQ(std::ssize(prompt.ids), length);
  EXPECT_EQ(prompt.number.size(), 7U);
  const std::string text = tokenizer->decode(prompt.ids);
  EXPECT_NE(text.find(" number is: " + prompt.number + "."), std::string::npos);
  EXPECT_EQ(text.find(prompt.number), text.rfind(prompt.number)) << "it is stated once";
  EXPECT_TRUE(text.ends_with(" number is:"));
  return text;
}

TEST(Needle, ComesAfterTheSentenceBeforeTheDepth) {
  for (const std::int64_t length : {400, 1000, 3000}) {
    const auto room = static_cast<double>(length - 180);  // without needle and question
    for (const double depth : {0.0, 0.3, 0.8, 1.0}) {
      const std::string text = text_at(length, depth);
      const std::size_t at = text.find(" The special magic");
      EXPECT_NEAR(static_cast<double>(at), depth * room, 60) << "a sentence has 30 bytes";
      EXPECT_TRUE(at == 0 || depth == 1 || text[at - 1] == '.') << text.substr(0, at);
    }
  }
}

TEST(Needle, DependsOnTheTrial) {
  EXPECT_EQ(text_at(500, 0.5), text_at(500, 0.5));
  EXPECT_NE(text_at(500, 0.5), text_at(500, 0.5, 1));
}

TEST(Needle, NeedsRoom) {
  const auto tokenizer = tokenizer::make_tokenizer("byte");
  EXPECT_THROW(needle_prompt(*tokenizer, haystack(), 100, 0.5, 1, 0), ConfigError);
  EXPECT_THROW(needle_prompt(*tokenizer, "", 500, 0.5, 1, 0), ConfigError);
}

TEST(Needle, OptionsOutOfRangeAreRefused) {
  const weights::ModelSource source = tiny_model({{"max_position_embeddings", 400}});
  const auto find = [&](const NeedleOptions& o) {
    find_needles(source, precision::Policy::parse("32-true"), o, mantissa::testing::best_device());
  };
  EXPECT_THROW(find({.lengths = {390}, .depths = {0}}), ConfigError) << "the answer needs positions too";
  EXPECT_THROW(find({.lengths = {300}, .depths = {1.5}}), ConfigError);
  EXPECT_THROW(find({.lengths = {300}, .depths = {}}), ConfigError);
  EXPECT_NO_THROW(find({.lengths = {300}, .depths = {0.5}}));
}

}  // namespace
}  // namespace mantissa::eval
