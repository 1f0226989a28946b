// Shell quoting, line wrapping, and errors with cures.
#include "mantissa/core/base/words.h"

#include <gtest/gtest.h>

#include "mantissa/core/base/error.h"

namespace mantissa {
namespace {

TEST(ShellWords, QuotesWordsThatAShellWouldChange) {
  const std::vector<std::string> words = {
      "mantissa", "--set", "optimizer.lr=1e-3", "--rule", "*: compute=f32", "it's", ""};
  EXPECT_EQ(shell_words(words), R"(mantissa --set optimizer.lr=1e-3 --rule '*: compute=f32' 'it'\''s' '')");
}

TEST(ShellWords, HaveNoControlCharacters) {
  const std::vector<std::string> words = {"--out", "e\x1b[31m'X\\", "\u202etxt"};
  EXPECT_EQ(shell_words(words), R"(--out $'e\x1b[31m\'X\\' $'\xe2\x80\xaetxt')");
}

TEST(Wrapped, BreaksAtSpacesAndIndentsLaterLines) {
  EXPECT_EQ(wrapped("one two three four", 2, 9), "one two\n  three\n  four");
  EXPECT_EQ(wrapped("note    one two three", 8, 16), "note    one two\n        three");
  EXPECT_EQ(wrapped("six666 next", 6, 8), "six666\n      next")
      << "the first line may be as long as the indent";
  EXPECT_EQ(wrapped("a_word_that_is_longer b", 2, 8), "a_word_that_is_longer\n  b");
  EXPECT_EQ(wrapped("– → –", 0, 5), "– → –") << "counts characters, not bytes";
  EXPECT_EQ(wrapped("", 2, 8), "");
}

TEST(Error, AppendsItsCuresToTheMessage) {
  const RunStopped e("step 3: the loss is nan", {{{"--resume", "--rule", "lm_head: compute=f32"}},
                                                 {{"--resume", "--precision", "32-true"}, "is slower"}});
  EXPECT_EQ(e.message(), "step 3: the loss is nan");
  EXPECT_STREQ(e.what(),
               "step 3: the loss is nan. Fix: --resume --rule 'lm_head: compute=f32', or --resume "
               "--precision 32-true (is slower)");
  EXPECT_EQ(e.cures().size(), 2U);
  EXPECT_STREQ(ConfigError("plain").what(), "plain");
}

}  // namespace
}  // namespace mantissa
