// The rules that need no program: which text of a response counts, and what it is compared with.
#include <gtest/gtest.h>

#include "mantissa/core/base/error.h"
#include "mantissa/text/reward/reference.h"
#include "text/reward/scoring.h"
#include "text/rows/temp_files.h"

namespace mantissa::reward {
namespace {

using Json = nlohmann::ordered_json;
using text::error_of;
using text::has;

TEST(Rules, AreNamedByTheirKind) {
  for (const char* rule : {"kk", "exact", "regex:", "regex:a+", "program:cat"}) check_rule(rule);
  EXPECT_TRUE(has(
      error_of<ConfigError>([] { make_rule("exakt"); }),
      "reward \"exakt\": expected kk, exact, \"regex:PATTERN\", model or \"program:COMMAND\"; did you mean "
      "\"exact\"?"));
  EXPECT_TRUE(has(error_of<ConfigError>([] { check_rule("regexp:a"); }), "did you mean \"regex\"?"));
  EXPECT_TRUE(has(error_of<ConfigError>([] { check_rule("model:rm"); }),
                  "the reward model's path as rl.reward_model"));
  for (const char* rule : {"", "KK", "regex", "program", "kk:", " kk"})
    EXPECT_TRUE(has(error_of<ConfigError>([&] { check_rule(rule); }), "expected kk")) << rule;
  EXPECT_TRUE(has(error_of<ConfigError>([] { check_rule("program: \t"); }), "the command is empty"));
  EXPECT_TRUE(has(error_of<ConfigError>([] { check_rule(std::string("program:a\0b", 11)); }), "NUL"));
}

TEST(AnswerOfAResponse, IsInTheLastPairOfTagsOrTheWholeText) {
  EXPECT_EQ(answer_in("42"), "42");
  EXPECT_EQ(answer_in("<think>1</think> <answer>42</answer> ."), "42");
  EXPECT_EQ(answer_in("<answer>1</answer><answer>2</answer>"), "2");
  EXPECT_EQ(answer_in("<answer>1<answer>2</answer>3</answer>"), "2");
  EXPECT_EQ(answer_in("<answer>1</answer> <answer>2"), "1") << "an open tag has no answer";
  EXPECT_EQ(answer_in("<answer>1"), "<answer>1");
  EXPECT_EQ(answer_in("1</answer>"), "1</answer>");
  EXPECT_EQ(answer_in("</answer>1<answer>"), "</answer>1<answer>");
  EXPECT_EQ(answer_in("<ANSWER>1</ANSWER>"), "<ANSWER>1</ANSWER>");
  EXPECT_EQ(answer_in("a <answer></answer>"), "");
}

TEST(AnswerOfAResponse, HasNoWhiteSpaceAtItsEnds) {
  EXPECT_EQ(answer_in(" \n\t4 2\u3000\u00a0\x1c"), "4 2");
  EXPECT_EQ(answer_in("<answer>\u2003 a\r\n</answer>"), "a");
  EXPECT_EQ(answer_in("\u200b"), "\u200b") << "zero width space is not white space";
  EXPECT_EQ(answer_in(" \xff \x80 "), "\xff \x80") << "not UTF-8";
  EXPECT_EQ(answer_in(" \n "), "");
}

TEST(ReferenceAnswer, IsTheFirstFieldThatTheRowHas) {
  const auto reference = [](const Json& row) { return reference_answer(row, "f:1"); };
  EXPECT_EQ(reference({{"solution", "c"}, {"completion", "b"}, {"answer", "a"}}), "a");
  EXPECT_EQ(reference({{"solution", "c"}, {"completion", "b"}, {"answer", nullptr}}), "b");
  EXPECT_EQ(reference({{"solution", " c\n"}}), "c");
  EXPECT_EQ(reference({{"completion", "<think>x</think> <answer> 7 </answer>"}}), "7");
  EXPECT_EQ(reference({{"answer", 42}}), "42");
  EXPECT_EQ(reference({{"answer", -1.5}}), "-1.5");
  EXPECT_EQ(reference({{"answer", true}}), "true");
}

TEST(ReferenceAnswer, MustBeAText) {
  const auto error = [](const Json& row) {
    return error_of<FileError>([&] { make_rule("exact")->check_row(row, "f.jsonl:3"); });
  };
  EXPECT_TRUE(has(error({{"text", "x"}}),
                  "f.jsonl:3: no right answer to compare responses with; expected "
                  "\"answer\", \"completion\" or \"solution\""));
  EXPECT_TRUE(has(error({{"solution", {true, false}}}), "f.jsonl:3: \"solution\" is an array"));
  EXPECT_TRUE(has(error({{"answer", {{"a", 1}}}}), "f.jsonl:3: \"answer\" is an object"));
  EXPECT_TRUE(has(error({{"answer", "<answer> </answer>"}}), "f.jsonl:3: \"answer\" has an empty answer"));
}

TEST(ExactRule, ComparesTheAnswersByteForByte) {
  const Json row = {{"answer", "Paris"}};
  const auto rule = make_rule("exact");
  EXPECT_EQ(totals_of(*rule,
                      {"Paris", " Paris\n", "<think>Rome?</think><answer>Paris</answer>", "paris", "Paris.",
                       "It is Paris", "", "<answer>Rome</answer> Paris"},
                      row),
            (std::vector<double>{1, 1, 1, 0, 0, 0, 0, 0}));
  const Score score = scores_of(*rule, {"Paris"}, row).at(0);
  EXPECT_EQ(score.parts, (decltype(score.parts){{"match", 1}}));
  EXPECT_EQ(score.right, true);
  EXPECT_EQ(reward_of("exact", "3.0", {{"answer", 3.0}}), 1);
  EXPECT_EQ(reward_of("exact", "3", {{"answer", 3.0}}), 0);
}

TEST(RegexRule, MatchesAnywhereInTheResponse) {
  EXPECT_EQ(reward_of("regex:b+", "abbc"), 1);
  EXPECT_EQ(reward_of("regex:^b", "abbc"), 0);
  EXPECT_EQ(reward_of("regex:^c$", "ab\nc"), 0) << "^ and $ are those of the whole text";
  EXPECT_EQ(reward_of("regex:(?m)^c$", "ab\nc"), 1);
  EXPECT_EQ(reward_of("regex:a.b", "a\nb"), 0);
  EXPECT_EQ(reward_of("regex:(?s)a.b", "a\nb"), 1);
  EXPECT_EQ(reward_of("regex:(?i)ÉMILE", "émile"), 1) << "letters are Unicode's";
  EXPECT_EQ(reward_of("regex:\\bx\\b", "éx"), 0) << "and so are the boundaries of words";
  EXPECT_EQ(reward_of("regex:", ""), 1);
  const auto rule = make_rule("regex:a");
  const Score score = scores_of(*rule, {"a"}).at(0);
  EXPECT_EQ(score.parts, (decltype(score.parts){{"match", 1}, {"over_limit", 0}}));
  EXPECT_EQ(score.right, true);
}

TEST(RegexRule, BytesThatAreNotUtf8MatchNothing) {
  EXPECT_EQ(reward_of("regex:^a", "a\xff"), 1);
  EXPECT_EQ(reward_of("regex:a.b",
                      "a\xff"
                      "b"),
            0);
  EXPECT_EQ(reward_of("regex:b",
                      "\x80\xff"
                      "b"),
            1);
}

TEST(RegexRule, TheAnswerOfTheRowHasItsPlaceInThePattern) {
  const auto reward = [](const std::string& pattern, const std::string& response, const Json& answer) {
    return reward_of("regex:" + pattern, response, {{"answer", answer}});
  };
  EXPECT_EQ(reward("^It is {answer}\\.$", "It is 42.", 42), 1);
  EXPECT_EQ(reward("^It is {answer}\\.$", "It is 43.", 42), 0);
  EXPECT_EQ(reward("^{answer}$", "a.b", "a.b"), 1);
  EXPECT_EQ(reward("^{answer}$", "axb", "a.b"), 0) << "the characters of the answer are no pattern";
  const std::string odd = "\\E[^a-z]{2}(?x) # \\Q*é\n\t中$|/";
  EXPECT_EQ(reward("^{answer}$", odd, odd), 1);
  EXPECT_EQ(reward("(?x) ^ {answer} $ # comment", odd, odd), 1);
  EXPECT_EQ(reward("^\\Q{answer}!\\E$", odd + "!", odd), 1) << "also in a quotation";
  EXPECT_EQ(reward(R"(\\boxed\{{answer}\})", R"(so \boxed{1.5})", 1.5), 1);
  EXPECT_EQ(reward(R"(\\boxed\{{answer}\})", R"(so \boxed{1x5})", 1.5), 0);
  EXPECT_EQ(reward("^{answer}{answer}$", "xx", "x"), 1);
  EXPECT_EQ(reward("^\\{answer}$", "{answer}", "x"), 1) << "a backslash makes it a text";
  EXPECT_EQ(reward("^\\\\{answer}$", "\\x", "x"), 1) << "which a backslash of its own does not";
  EXPECT_EQ(reward("^{answer}$", "7", "<think></think> <answer> 7\n</answer>"), 1);
}

TEST(RegexRule, EachSampleIsComparedWithTheAnswerOfItsRow) {
  const auto rule = make_rule("regex:^{answer}$");
  const std::vector<Json> rows = {{{"answer", "a"}}, {{"answer", "b"}}, {{"answer", "c"}}};
  const std::vector<Sample> samples = {{"", "a", &rows[0]}, {"", "b", &rows[1]}, {"", "b", &rows[2]}};
  std::vector<double> totals;
  for (const Score& score : rule->score(samples)) totals.push_back(score.total);
  EXPECT_EQ(totals, (std::vector<double>{1, 1, 0}));
}

TEST(RegexRule, OnlyAPatternWithAnAnswerNeedsOneInTheRow) {
  const Json row = {{"text", "x"}};
  make_rule("regex:a")->check_row(row, "f:1");
  make_rule("regex:\\{answer}")->check_row(row, "f:1");
  EXPECT_TRUE(
      has(error_of<FileError>([&] { make_rule("regex:{answer}")->check_row(row, "f:1"); }), "f:1: no "));
}

TEST(RegexRule, AnInvalidPatternIsRefusedWithItsPlace) {
  EXPECT_TRUE(has(error_of<ConfigError>([] { check_rule("regex:a(b"); }),
                  "the pattern is invalid at byte 4: missing closing parenthesis"));
  EXPECT_TRUE(has(error_of<ConfigError>([] { check_rule("regex:[z-a]"); }), "is invalid"));
  EXPECT_TRUE(has(error_of<ConfigError>([] { check_rule("regex:\xff"); }), "is invalid"));
}

TEST(RegexRule, AnAnswerThatMakesThePatternInvalidIsAFaultOfItsRow) {
  const auto rule = make_rule("regex:(?<{answer}>x)");
  rule->check_row({{"answer", "name"}}, "f:1");
  EXPECT_TRUE(has(error_of<FileError>([&] {
                    rule->check_row({{"answer", "a b"}}, "f:2");
                  }),
                  "f:2: with the answer of the row, the pattern is invalid"));
}

TEST(RegexRule, AnEndlessSearchIsGivenUp) {
  const auto rule = make_rule("regex:^(a+)+$");
  const std::vector<Score> scores = scores_of(*rule, {std::string(40, 'a') + "b", std::string(40, 'a')});
  EXPECT_EQ(scores[0].total, 0);
  EXPECT_EQ(scores[0].parts, (decltype(scores[0].parts){{"match", 0}, {"over_limit", 1}}));
  EXPECT_EQ(scores[1].parts, (decltype(scores[0].parts){{"match", 1}, {"over_limit", 0}}))
      << "one response only";
}

}  // namespace
}  // namespace mantissa::reward
