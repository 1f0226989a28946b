#include "mantissa/text/puzzles/kk_words.h"

#include <fmt/format.h>

#include <array>

#include "mantissa/text/puzzles/kk_reasoning.h"

namespace mantissa::text {
namespace {

/// A phrase that attributes a claim to a speaker.
struct Saying {
  const char* pattern;  // {0}: the speaker, {1}: the claim
  bool quotes;          // the claim is a quoted sentence with a capital first letter
};

constexpr std::array<Saying, 18> kSayings{{{"{0} said that {1}.", false},
                                           {"{0} told you that {1}.", false},
                                           {"{0} expressed that {1}.", false},
                                           {"{0} said, \"{1}.\"", true},
                                           {"{0} stated, \"{1}\".", true},
                                           {"{0} noted, \"{1}\".", true},
                                           {"{0} remarked, \"{1}\".", true},
                                           {"{0} commented, \"{1}\".", true},
                                           {"{0} asserted: \"{1}\".", true},
                                           {"{0} was heard saying, \"{1}\".", true},
                                           {"According to {0}, \"{1}\".", true},
                                           {"As {0} put it, \"{1}\".", true},
                                           {"In {0}'s words: \"{1}\".", true},
                                           {"In a statement by {0}: \"{1}\".", true},
                                           {"\"{1},\" {0} claimed.", true},
                                           {"\"{1},\" {0} declared.", true},
                                           {"\"{1},\" {0} mentioned.", true},
                                           {"\"{1}\" - {0}.", true}}};

/// "Ada and Ben", "Ada, Ben, and Carl".
std::string list_words(const std::vector<std::string>& names) {
  if (names.size() == 2) return fmt::format("{} and {}", names[0], names[1]);
  std::string list;
  for (std::size_t i = 0; i + 1 < names.size(); ++i) list += fmt::format("{}, ", names[i]);
  return fmt::format("{}and {}", list, names.back());
}

std::string said_in_some_way(const std::string& name, std::string claim,
                             const std::function<int(int)>& draw) {
  const Saying& saying = kSayings[static_cast<std::size_t>(draw(static_cast<int>(kSayings.size())))];
  if (saying.quotes && claim[0] == 'i') claim[0] = 'I';
  return fmt::format(fmt::runtime(saying.pattern), name, claim);
}

std::string long_quiz(const KkPuzzle& puzzle, const std::function<int(int)>& draw) {
  std::string quiz = fmt::format(
      "Everybody on this island is either a knight or a knave. Knights always tell the truth, and knaves "
      "always lie. You meet {} inhabitants: {}. ",
      puzzle.names.size(), list_words(puzzle.names));
  for (std::size_t i = 0; i < puzzle.names.size(); ++i) {
    quiz += said_in_some_way(puzzle.names[i], puzzle.statements[i].words(puzzle.names), draw) + " ";
  }
  return quiz + "So who is a knight and who is a knave?";
}

std::string short_quiz(const KkPuzzle& puzzle) {
  std::string quiz;
  for (std::size_t i = 0; i < puzzle.names.size(); ++i) {
    quiz +=
        fmt::format("({}) {} said {}. ", i + 1, puzzle.names[i], puzzle.statements[i].words(puzzle.names));
  }
  return quiz + "Who is who?";
}

constexpr const char* kLongPrompt =
    "Solve the puzzle of the user. First reason about it between <think> and </think>; then say who "
    "everybody is between <answer> and </answer>, one person a line, for example <answer>(1) Zoey is a "
    "knight\n(2) Oliver is a knave</answer>.\nUser: {}\nAssistant:";

}  // namespace

std::string role_words(const KkPuzzle& puzzle, std::size_t i) {
  const bool knight = is_knight(puzzle.knights, static_cast<int>(i));
  return fmt::format("{} is a {}", puzzle.names[i], knight ? "knight" : "knave");
}

void put_into_words(KkPuzzle& puzzle, KkStyle style, const std::function<int(int)>& draw) {
  if (style == KkStyle::logic_rl) {
    puzzle.quiz = long_quiz(puzzle, draw);
    puzzle.prompt = fmt::format(fmt::runtime(kLongPrompt), puzzle.quiz);
  } else {
    puzzle.quiz = short_quiz(puzzle);
    puzzle.prompt = puzzle.quiz + "\nAssistant:";
  }
  puzzle.reasoning = kk_reasoning(puzzle.statements, puzzle.names, puzzle.knights);
  puzzle.answer.clear();
  for (std::size_t i = 0; i < puzzle.names.size(); ++i) {
    puzzle.answer += fmt::format("{}({}) {}", i == 0 ? "" : "\n", i + 1, role_words(puzzle, i));
  }
}

}  // namespace mantissa::text
