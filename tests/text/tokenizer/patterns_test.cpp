// Matches of patterns in Oniguruma's syntax, where PCRE2's differs. The matches are those of the library
// `tokenizers`.
#include "mantissa/text/tokenizer/patterns.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace mantissa::tokenizer {
namespace {

std::vector<std::string> matches(const char* expression, const std::string& text) {
  const Pattern pattern = Pattern::onig(expression);
  MatchMemory memory;
  std::vector<std::string> found;
  pattern.for_each(text, memory, [&](std::size_t start, std::size_t end) {
    found.push_back(text.substr(start, end - start));
  });
  return found;
}

using Found = std::vector<std::string>;

TEST(OnigPatterns, APlusAfterAnIntervalRepeatsIt) {
  EXPECT_EQ(matches("a{1,3}+", "aaaaab"), Found{"aaaaa"});
  EXPECT_EQ(matches("a{1,3}+a", "aaaaab"), Found{"aaaaa"});
}

TEST(OnigPatterns, AfterAnIntervalPlusQuestionIsLazyAndPlusPlusPossessive) {
  EXPECT_EQ(matches("a{1,2}+?", "aaaaab"), (Found{"aa", "aa", "a"}));
  EXPECT_EQ(matches("a{1,2}++a", "aaaaab"), Found{});
  EXPECT_EQ(matches("a{1,2}++?b", "xaab"), Found{"aab"});
  EXPECT_EQ(matches("a{1,2}++?b", "xb"), Found{"b"});
}

TEST(OnigPatterns, ClassesOfOneCaseInBracketsUnderIgnoredCaseAreUnsupported) {
  for (const char* expression :
       {"(?i:[\\p{Lu}x])", "(?i)[[:upper:]]", "(?i:[^\\p{Ll}])", "(?i:(?:[\\P{Lt}]))"})
    EXPECT_THROW(Pattern::onig(expression), std::invalid_argument) << expression;
  EXPECT_EQ(matches("(?i:\\p{Lu})", "aA"), Found{"A"});
  EXPECT_EQ(matches("(?i:x(?-i:[\\p{Lu}]))[\\p{Lu}]", "XaXAB"), Found{"XAB"});
}

}  // namespace
}  // namespace mantissa::tokenizer
