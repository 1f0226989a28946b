// Parses every sentence of a reasoning and proves each step from one person's words and the roles listed
// before.
#include "mantissa/text/puzzles/kk_reasoning.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "mantissa/text/puzzles/kk.h"
#include "text/puzzles/kk_parse.h"

namespace mantissa::text {
namespace {

/// The roles listed so far.
using Roles = std::map<int, bool>;

class Checker {
 public:
  Checker(std::vector<std::string> names, std::vector<ParsedStatement> statements)
      : names_(std::move(names)), statements_(std::move(statements)) {}

  /// Checks sentences of the form "If REFUTATION. So ROLE, ROLE, ROLE." At the end every role is known.
  Roles check(const std::vector<std::string>& sentences) {
    Roles known;
    for (const std::string& sentence : sentences) {
      text_ = sentence;
      at_ = 0;
      expect("If ");
      const auto [person, refuted] = refutation(known);
      expect(". So ");
      const auto [concluded, role] = claim();
      EXPECT_EQ(concluded, person) << text_;
      EXPECT_EQ(role, !refuted) << text_;
      known[concluded] = role;
      while (accept(", ")) follows(known);
      expect(".");
      EXPECT_EQ(at_, text_.size()) << text_;
    }
    return known;
  }

 private:
  /// Parses "A is a knight, then B is a knave, C is a knight (if C is a knave, B's words are true), but A's
  /// words are false". Returns the assumed role.
  std::pair<int, bool> refutation(Roles known) {
    const auto [person, role] = claim();
    EXPECT_EQ(known.count(person), 0U) << text_;
    known[person] = role;
    if (accept(", then ")) {
      do {
        step(known);
      } while (!accept(", but ") && accept(", "));
    } else {
      expect(", ");
    }
    misfit(known);
    return {person, role};
  }

  void step(Roles& known) {
    const std::size_t begin = at_;
    const auto [person, role] = claim();
    if (!accept(" (if ")) {
      at_ = begin;
      follows(known);
      return;
    }
    const auto [assumed, refuted] = refutation(known);
    expect(")");
    EXPECT_EQ(assumed, person) << text_;
    EXPECT_EQ(role, !refuted) << text_;
    known[person] = role;
  }

  /// Checks that a role follows from the words of one person and the known roles.
  void follows(Roles& known) {
    const auto [person, role] = claim();
    EXPECT_EQ(known.count(person), 0U) << text_;
    Roles otherwise = known;
    otherwise[person] = !role;
    bool proved = false;
    for (std::size_t speaker = 0; speaker < statements_.size(); ++speaker)
      proved = proved || !can_fit(speaker, otherwise);
    EXPECT_TRUE(proved) << names_[static_cast<std::size_t>(person)] << " does not follow in: " << text_;
    known[person] = role;
  }

  /// Checks "A's words are false" of a knight, "… true" of a knave, or "A can be neither".
  void misfit(const Roles& known) {
    const int person = name();
    const auto speaker = static_cast<std::size_t>(person);
    EXPECT_FALSE(can_fit(speaker, known)) << text_;
    if (accept(" can be neither")) {
      EXPECT_EQ(known.count(person), 0U) << text_;
      return;
    }
    expect("'s words are ");
    const bool truth = accept("true");
    if (!truth) expect("false");
    ASSERT_EQ(known.count(person), 1U) << text_;
    EXPECT_EQ(known.at(person), !truth) << text_;
  }

  /// True if some roles of the unknown people make the speaker's words fit the speaker.
  bool can_fit(std::size_t speaker, const Roles& known) const {
    for (std::uint32_t knights = 0; knights >> names_.size() == 0; ++knights) {
      bool agrees = true;
      for (const auto& [person, role] : known) agrees = agrees && ((knights >> person & 1U) == 1) == role;
      if (agrees && statements_[speaker].truth(knights) == ((knights >> speaker & 1U) == 1)) return true;
    }
    return false;
  }

  std::pair<int, bool> claim() {
    const int person = name();
    expect(" is a ");
    const bool knight = accept("knight");
    if (!knight) expect("knave");
    return {person, knight};
  }

  int name() {
    std::size_t end = at_;
    while (end < text_.size() && std::isalpha(static_cast<unsigned char>(text_[end])) != 0) ++end;
    const std::string word = text_.substr(at_, end - at_);
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] != word) continue;
      at_ = end;
      return static_cast<int>(i);
    }
    throw std::runtime_error("no such person: \"" + word + "\" in " + text_);
  }

  bool accept(std::string_view words) {
    if (text_.compare(at_, words.size(), words) != 0) return false;
    at_ += words.size();
    return true;
  }
  void expect(std::string_view words) {
    if (!accept(words))
      throw std::runtime_error("expected \"" + std::string(words) + "\" at \"" + text_.substr(at_) +
                               "\" of " + text_);
  }

  std::vector<std::string> names_;
  std::vector<ParsedStatement> statements_;
  std::string text_;
  std::size_t at_ = 0;
};

class KkReasoningOfSize : public ::testing::TestWithParam<int> {};

TEST_P(KkReasoningOfSize, EachStepFollowsAndTheEndIsTheSolution) {
  for (int depth = 1; depth <= 3; ++depth) {
    KkOptions options;
    options.people_min = options.people_max = GetParam();
    options.count = 200;
    options.depth = depth;
    for (const KkPuzzle& puzzle : generate(options)) {
      const auto row = nlohmann::json::parse(to_jsonl_row(puzzle));
      Checker checker(puzzle.names, TupleParser(row["statements"].get<std::string>()).statements());
      const Roles roles = checker.check(puzzle.reasoning);
      ASSERT_EQ(roles.size(), puzzle.names.size());
      for (const auto& [person, role] : roles) EXPECT_EQ(role, is_knight(puzzle.knights, person));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, KkReasoningOfSize, ::testing::Range(2, 9),
                         [](const auto& i) { return std::to_string(i.param); });

using Kind = KkStatement::Kind;

KkStatement says(Kind leaf, int person) {
  return {leaf, person, {}};
}

KkStatement same(KkStatement a, KkStatement b) {
  return {Kind::equivalence, 0, {std::move(a), std::move(b)}};
}

TEST(KkReasoning, OneAssumptionIsEnoughForMostPuzzles) {
  const std::vector<KkStatement> statements = {
      says(Kind::knight, 1), {Kind::disjunction, 0, {says(Kind::knave, 0), says(Kind::knight, 1)}}};
  ASSERT_EQ(kk_solutions(statements), (std::vector<std::uint32_t>{0b11}));
  EXPECT_EQ(kk_reasoning(statements, {"Zoe", "Max"}, 0b11),
            (std::vector<std::string>{
                "If Zoe is a knave, then Max is a knave, but Max's words are true. So Zoe is a "
                "knight, Max is a knight."}));
}

TEST(KkReasoning, AHarderPuzzleNestsRefutations) {
  const std::vector<std::string> names = {"Ruth", "Ivan", "Mia", "Ben"};
  const std::vector<KkStatement> statements = {
      same(says(Kind::knave, 3), says(Kind::knave, 1)), same(says(Kind::knave, 3), says(Kind::knave, 2)),
      same(says(Kind::knave, 1), says(Kind::knight, 0)), same(says(Kind::knight, 2), says(Kind::knight, 0))};
  ASSERT_EQ(kk_solutions(statements), (std::vector<std::uint32_t>{0b1000}));
  EXPECT_EQ(kk_reasoning(statements, names, 0b1000),
            (std::vector<std::string>{"If Ruth is a knight, then Ivan is a knave (if Ivan is a knight, then "
                                      "Ben is a knight, Mia is a knight, "
                                      "but Mia's words are false), Ben is a knave, Mia is a knight, but "
                                      "Ben's words are true. So Ruth is a knave.",
                                      "If Ivan is a knight, then Ben is a knave, Mia is a knave, but Mia's "
                                      "words are true. So Ivan is a knave, "
                                      "Ben is a knight, Mia is a knave."}));
  Checker checker(names,
                  TupleParser("(('<=>', ('lying', 3), ('lying', 1)), ('<=>', ('lying', 3), ('lying', 2)), "
                              "('<=>', ('lying', 1), ('telling-truth', 0)), "
                              "('<=>', ('telling-truth', 2), ('telling-truth', 0)))")
                      .statements());
  EXPECT_EQ(checker.check(kk_reasoning(statements, names, 0b1000)).size(), 4U);
}

}  // namespace
}  // namespace mantissa::text
