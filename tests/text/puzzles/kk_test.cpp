#include "mantissa/text/puzzles/kk.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/philox.h"
#include "mantissa/text/puzzles/kk_reward.h"
#include "text/puzzles/kk_parse.h"
#include "text/rows/temp_files.h"

namespace mantissa::text {
namespace {

using nlohmann::json;

KkOptions people(int n, std::int64_t count) {
  KkOptions options;
  options.people_min = options.people_max = n;
  options.count = count;
  return options;
}

json row_of(const KkPuzzle& puzzle) {
  return json::parse(to_jsonl_row(puzzle));
}

class KkOfSize : public ::testing::TestWithParam<int> {};

TEST_P(KkOfSize, ThePrintedStatementsHaveExactlyThePrintedSolution) {
  for (int depth = 1; depth <= 3; ++depth) {
    KkOptions options = people(GetParam(), 300);
    options.depth = depth;
    for (const KkPuzzle& puzzle : generate(options)) {
      const json row = row_of(puzzle);
      const auto statements = TupleParser(row["statements"].get<std::string>()).statements();
      ASSERT_EQ(statements.size(), static_cast<std::size_t>(GetParam()));
      const std::vector<std::uint32_t> solutions = brute_force(statements);
      ASSERT_EQ(solutions.size(), 1U) << row["statements"];
      for (std::size_t i = 0; i < statements.size(); ++i) {
        EXPECT_EQ(row["solution"][i].get<bool>(), (solutions[0] >> i & 1U) == 1) << row["statements"];
      }
    }
  }
}

TEST_P(KkOfSize, StatementsAreNotAboutTheirSpeakerExceptInJoinsOfPuzzlesOfTwo) {
  for (const KkPuzzle& puzzle : generate(people(GetParam(), 300))) {
    const auto statements = TupleParser(row_of(puzzle)["statements"].get<std::string>()).statements();
    for (std::size_t i = 0; i < statements.size(); ++i) {
      std::vector<int> spoken_of;
      statements[i].people(spoken_of);
      const std::set<int> unique(spoken_of.begin(), spoken_of.end());
      EXPECT_EQ(unique.size(), spoken_of.size());
      if (GetParam() == 2 && spoken_of.size() == 2) continue;
      EXPECT_EQ(unique.count(static_cast<int>(i)), 0U) << row_of(puzzle)["statements"];
    }
  }
}

TEST_P(KkOfSize, TheTextEarnsTheFullReward) {
  for (const KkStyle style : {KkStyle::brief, KkStyle::logic_rl}) {
    KkOptions options = people(GetParam(), 100);
    options.style = style;
    for (const KkPuzzle& puzzle : generate(options)) {
      EXPECT_EQ(kk_reward(puzzle.text(), puzzle.answer).total(), 3) << puzzle.text();
      EXPECT_TRUE(puzzle.text().starts_with(puzzle.prompt + " <think>"));
      EXPECT_TRUE(puzzle.prompt.ends_with("\nAssistant:"));
    }
  }
}

TEST_P(KkOfSize, NamesDiffer) {
  for (const KkPuzzle& puzzle : generate(people(GetParam(), 100))) {
    EXPECT_EQ(std::set<std::string>(puzzle.names.begin(), puzzle.names.end()).size(),
              static_cast<std::size_t>(GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, KkOfSize, ::testing::Range(2, 9),
                         [](const auto& i) { return std::to_string(i.param); });

// Translates "Zoe is a knave or Max is not a knight" to the form of the field `statements`.
std::string tuple_of_words(const std::string& words, const std::vector<std::string>& names) {
  const auto join = [&](const std::string& op, const std::string& a, const std::string& b) {
    return "('" + op + "', " + tuple_of_words(a, names) + ", " + tuple_of_words(b, names) + ")";
  };
  if (words.starts_with("if ")) {
    const std::size_t then = words.find(" then ");
    return join("->", words.substr(3, then - 3), words.substr(then + 6));
  }
  for (const auto& [link, op] :
       {std::pair<std::string, std::string>{" if and only if ", "<=>"}, {" and ", "and"}, {" or ", "or"}}) {
    const std::size_t at = words.find(link);
    if (at != std::string::npos) return join(op, words.substr(0, at), words.substr(at + link.size()));
  }
  const std::size_t is = words.find(" is ");
  const auto person = std::find(names.begin(), names.end(), words.substr(0, is)) - names.begin();
  const std::string claim = words.substr(is);
  const std::string role = claim.ends_with("knight") ? "telling-truth" : "lying";
  const std::string leaf =
      std::string("('").append(role).append("', ").append(std::to_string(person)).append(")");
  return claim.starts_with(" is not ") ? "('not', " + leaf + ")" : leaf;
}

TEST(Kk, TheQuizExpressesTheStatementsInWords) {
  KkOptions options;
  options.count = 500;
  for (const KkPuzzle& puzzle : generate(options)) {
    std::string rest = puzzle.quiz, tuples;
    for (std::size_t i = 0; i < puzzle.names.size(); ++i) {
      std::string who = "(";
      who.append(std::to_string(i + 1)).append(") ").append(puzzle.names[i]).append(" said ");
      ASSERT_TRUE(rest.starts_with(who)) << puzzle.quiz;
      const std::size_t end = rest.find(". ");
      tuples += (tuples.empty() ? "(" : ", ") +
                tuple_of_words(rest.substr(who.size(), end - who.size()), puzzle.names);
      rest = rest.substr(end + 2);
    }
    EXPECT_EQ(tuples + ")", row_of(puzzle)["statements"].get<std::string>());
    EXPECT_EQ(rest, "Who is who?");
  }
}

TEST(Kk, EveryStyleHasTheSamePuzzles) {
  KkOptions options;
  options.count = 100;
  const std::vector<KkPuzzle> brief = generate(options);
  options.style = KkStyle::logic_rl;
  const std::vector<KkPuzzle> full = generate(options);
  for (std::size_t i = 0; i < brief.size(); ++i) {
    EXPECT_EQ(brief[i].statements, full[i].statements);
    EXPECT_EQ(brief[i].names, full[i].names);
    EXPECT_EQ(brief[i].reasoning, full[i].reasoning);
    for (std::size_t p = 0; p < full[i].names.size(); ++p) {  // except for the first letter of a quotation
      EXPECT_TRUE(has(full[i].quiz, full[i].statements[p].words(full[i].names).substr(1)));
    }
  }
}

TEST(Kk, NestedPartsAreInParentheses) {
  using Kind = KkStatement::Kind;
  const std::vector<std::string> names = {"Ada", "Ben"};
  const KkStatement ada{Kind::knight, 0, {}}, ben{Kind::knave, 1, {}};
  const KkStatement both{Kind::conjunction, 0, {ada, ben}};
  EXPECT_EQ((KkStatement{Kind::negation, 0, {both}}.words(names)),
            "it is not so that (Ada is a knight and Ben is a knave)");
  EXPECT_EQ((KkStatement{Kind::implication, 0, {both, ada}}.words(names)),
            "if (Ada is a knight and Ben is a knave) then Ada is a knight");
  EXPECT_EQ((KkStatement{Kind::equivalence, 0, {KkStatement{Kind::negation, 0, {ben}}, both}}.tuple()),
            "('<=>', ('not', ('lying', 1)), ('and', ('telling-truth', 0), ('lying', 1)))");
}

TEST(Kk, EveryKindOfStatementAndEverySizeOccurs) {
  KkOptions options;
  options.count = 2000;
  std::set<std::string> kinds;
  std::set<std::size_t> sizes;
  for (const KkPuzzle& puzzle : generate(options)) {
    sizes.insert(puzzle.names.size());
    for (const auto& s : TupleParser(row_of(puzzle)["statements"].get<std::string>()).statements())
      kinds.insert(s.op);
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"telling-truth", "lying", "not", "and", "or", "->", "<=>"}));
  EXPECT_EQ(sizes, (std::set<std::size_t>{2, 3, 4, 5, 6, 7, 8}));
}

TEST(Kk, TrainAndTestOfAllSeedsShareNoStatements) {
  std::set<std::string> train, test;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    KkOptions options;
    options.seed = seed;
    options.people_max = 4;  // small puzzles, so that seeds produce duplicates
    options.count = 3000;
    for (const KkPuzzle& puzzle : generate(options))
      train.insert(row_of(puzzle)["statements"].get<std::string>());
    options.split = KkSplit::test;
    options.count = 500;
    for (const KkPuzzle& puzzle : generate(options))
      test.insert(row_of(puzzle)["statements"].get<std::string>());
  }
  EXPECT_LT(train.size(), 6 * 3000U);  // some occurred more than once
  EXPECT_LT(test.size(), 6 * 500U);
  for (const std::string& statements : test) EXPECT_EQ(train.count(statements), 0U) << statements;
}

TEST(Kk, OnePuzzleIsThatOfTheList) {
  KkOptions options;
  options.seed = 5;
  options.count = 4;
  options.split = KkSplit::test;
  const std::vector<KkPuzzle> all = generate(options);
  for (std::size_t i = 0; i < all.size(); ++i)
    EXPECT_EQ(to_jsonl_row(generate_one(options, static_cast<std::int64_t>(i))), to_jsonl_row(all[i]));
}

TEST(Kk, AShorterListIsAPrefixOfALongerOne) {
  KkOptions options;
  options.count = 50;
  const std::vector<KkPuzzle> few = generate(options);
  options.count = 80;
  const std::vector<KkPuzzle> more = generate(options);
  ASSERT_EQ(few.size(), 50U);
  ASSERT_EQ(more.size(), 80U);
  for (std::size_t i = 0; i < few.size(); ++i) EXPECT_EQ(few[i].text(), more[i].text());
  options.seed = 2;
  EXPECT_NE(generate(options)[0].text(), more[0].text());
  options.count = 0;
  EXPECT_TRUE(generate(options).empty());
}

// XXH3 of the first hundred rows. They are the same on every machine and must not change.
std::uint64_t fingerprint(const KkOptions& options) {
  std::string rows;
  for (const KkPuzzle& puzzle : generate(options)) rows += to_jsonl_row(puzzle) + "\n";
  return hash_name(rows);
}

TEST(Kk, TheFirstHundredRowsAreFixed) {
  KkOptions options;
  options.count = 100;
  EXPECT_EQ(fingerprint(options), 12328896490966510801U);
  options.split = KkSplit::test;
  options.style = KkStyle::logic_rl;
  options.depth = 2;
  EXPECT_EQ(fingerprint(options), 17338925510647782143U);
}

TEST(Kk, ARowHasTheFieldsOfLogicRl) {
  KkOptions options = people(3, 1);
  options.style = KkStyle::logic_rl;
  const KkPuzzle puzzle = generate(options)[0];
  const json row = row_of(puzzle);
  EXPECT_EQ(row["quiz"], puzzle.quiz);
  EXPECT_EQ(row["names"], json(puzzle.names));
  EXPECT_EQ(row["solution"].size(), 3U);
  EXPECT_EQ(row["solution_text_format"], puzzle.answer);
  EXPECT_EQ(row["reward_model"]["ground_truth"]["solution_text_format"], puzzle.answer);
  EXPECT_EQ(row["reward_model"]["ground_truth"]["statements"], row["statements"]);
  EXPECT_EQ(row["reward_model"]["style"], "rule");
  EXPECT_EQ(row["prompt"].size(), 1U);
  EXPECT_EQ(row["prompt"][0]["role"], "user");
  EXPECT_EQ(row["prompt"][0]["content"], puzzle.prompt);
  EXPECT_EQ(row["prompt_text"], puzzle.prompt);
  EXPECT_EQ(row["difficulty"], "3ppl");
  EXPECT_EQ(row["cot_repeat_steps"], json(puzzle.reasoning));
  EXPECT_EQ(row["text"], puzzle.text());
  EXPECT_TRUE(has(puzzle.quiz, "You meet 3 inhabitants: " + puzzle.names[0] + ", " + puzzle.names[1] +
                                   ", and " + puzzle.names[2] + "."));
  EXPECT_TRUE(has(puzzle.quiz, "So who is a knight and who is a knave?"));
  const auto role = [&](std::size_t i) {
    return puzzle.names[i] + " is a " + (row["solution"][i].get<bool>() ? "knight" : "knave");
  };
  EXPECT_EQ(row["solution_text"], role(0) + ", " + role(1) + ", and " + role(2) + ".");
  EXPECT_EQ(puzzle.answer, "(1) " + role(0) + "\n(2) " + role(1) + "\n(3) " + role(2));
}

TEST(Kk, APuzzleOfTwoFitsIn328BytesAndOneOfThreeIn528) {
  for (const auto& [n, bytes] : {std::pair<int, std::size_t>{2, 328}, {3, 528}}) {
    for (const KkPuzzle& puzzle : generate(people(n, 2000))) EXPECT_LT(puzzle.text().size(), bytes);
  }
}

TEST(Kk, NamesBeginWithLettersThatBeginNoOtherWord) {
  std::map<char, std::string> names;
  for (const KkPuzzle& puzzle : generate(people(8, 200))) {
    for (const std::string& name : puzzle.names) {
      const auto known = names.emplace(name[0], name).first;
      EXPECT_EQ(known->second, name);
    }
  }
  for (const char used : {'A', 'I', 'S', 'W'}) EXPECT_EQ(names.count(used), 0U);  // Assistant, If, So, Who
}

TEST(Kk, RejectsOptionsOutOfRange) {
  for (const auto& [least, most] : {std::pair{1, 3}, {2, 9}, {5, 4}}) {
    KkOptions options;
    options.people_min = least;
    options.people_max = most;
    EXPECT_TRUE(has(error_of<ConfigError>([&] { generate(options); }), "puzzles of 2 to 8"));
  }
  KkOptions options;
  options.count = -1;
  EXPECT_TRUE(has(error_of<ConfigError>([&] { generate(options); }), "count -1 is negative"));
  options = {};
  options.depth = 4;
  EXPECT_TRUE(has(error_of<ConfigError>([&] { generate(options); }), "depths of 1 to 3"));
  EXPECT_EQ(parse_kk_style("short"), KkStyle::brief);
  EXPECT_EQ(parse_kk_style("logic-rl"), KkStyle::logic_rl);
  EXPECT_TRUE(has(error_of<ConfigError>([] { parse_kk_style("long"); }), "short or logic-rl"));
}

}  // namespace
}  // namespace mantissa::text
