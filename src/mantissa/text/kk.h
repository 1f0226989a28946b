// Knights and Knaves: puzzles with exactly one solution, proved by search, with a short true reasoning (as
// Logic-RL trains on).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::text {

/// What somebody says. Leaves speak of one person; the others of two leaves or, for `negation`, of one.
struct KkStatement {
  enum class Kind : std::uint8_t {
    knight,
    knave,
    negation,
    conjunction,
    disjunction,
    implication,
    equivalence
  } kind = Kind::knight;
  int person = 0;                  // of a leaf
  std::vector<KkStatement> parts;  // of the others

  /// Whether it holds where bit i of `knights` says that person i is a knight.
  bool holds(std::uint32_t knights) const;
  /// "Oliver is a knave or Zoey is a knight"
  std::string words(const std::vector<std::string>& names) const;
  /// "('or', ('lying', 1), ('telling-truth', 0))", as Logic-RL's rows have it
  std::string tuple() const;
  bool operator==(const KkStatement&) const = default;
};

struct KkPuzzle {
  std::vector<std::string> names;
  std::vector<KkStatement> statements;  // of each person
  std::uint32_t knights = 0;            // the one solution, a bit per person
  std::string quiz;                     // the puzzle in words
  std::string prompt;                   // what a model is given, up to and with "Assistant:"
  std::string reasoning;
  std::string answer;  // "(1) Zoey is a knight\n(2) Oliver is a knave"
  /// Prompt, reasoning and answer with their tags: a document to train on.
  std::string text() const;
};

enum class KkSplit : std::uint8_t { train, test };
enum class KkStyle : std::uint8_t { brief, logic_rl };
/// "short" or "logic-rl". Throws ConfigError.
KkStyle parse_kk_style(const std::string& name);

struct KkOptions {
  std::uint64_t seed = 1;
  int people_min = 2;
  int people_max = 8;
  std::int64_t count = 1;
  KkSplit split = KkSplit::train;
  KkStyle style = KkStyle::brief;
};

/// Puzzles in an order that depends on the options alone. A puzzle belongs to the test split where a hash of
/// its names and statements says so, one in eight: the splits of all seeds are disjoint. Throws ConfigError
/// for sizes out of 2 … 8.
std::vector<KkPuzzle> generate(const KkOptions& options);

/// Roles that fit all statements, by exhaustive search: bit sets of knights.
std::vector<std::uint32_t> solutions(const std::vector<KkStatement>& statements);

/// One line of JSON: quiz, names, solution, solution_text, solution_text_format, statements, prompt,
/// prompt_text, reward_model, difficulty, text.
std::string to_jsonl_row(const KkPuzzle& puzzle);

}  // namespace mantissa::text
