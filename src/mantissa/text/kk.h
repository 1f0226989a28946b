// Knights and Knaves: puzzles with exactly one solution, proved by search, with a short true reasoning (as
// Logic-RL trains on).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/text/kk_statement.h"

namespace mantissa::text {

struct KkPuzzle {
  std::vector<std::string> names;
  std::vector<KkStatement> statements;  // of each person
  std::uint32_t knights = 0;            // the one solution, a bit per person
  std::string quiz;                     // the puzzle in words
  std::string prompt;                   // what a model is given, up to and with "Assistant:"
  std::vector<std::string> reasoning;   // sentences
  std::string answer;                   // "(1) Zoey is a knight\n(2) Oliver is a knave"

  /// Prompt, reasoning and answer with their tags: a document to train on, of reward 3.
  std::string text() const;
};

enum class KkSplit : std::uint8_t { train, test };

/// How a puzzle is told; the puzzle is the same. `brief`: only what everybody said, numbered, always in the
/// same words. `logic_rl`: the rules of the island, many ways to say that somebody said something, and how to
/// answer, as in Logic-RL's rows.
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
  int depth = 1;  // of statements: 1, as Logic-RL has it, joins two leaves; up to 3
};

/// Puzzle i depends on the options and i alone: those of a smaller `count` are the first of a larger one.
/// The number of people is drawn evenly from [people_min, people_max]. Nobody speaks of themselves, but for
/// puzzles of two, in which a statement of two parts speaks of both people.
///
/// Everybody's statements together, without the names, decide by a hash whether a puzzle belongs to the test
/// split, one in eight: no puzzle of the test split of any seed has the statements of one in the train split
/// of any seed.
///
/// Throws ConfigError for sizes out of 2 … 8, a negative count, and a depth out of 1 … 3.
std::vector<KkPuzzle> generate(const KkOptions& options);

/// One line of JSON with the fields of Logic-RL's rows (quiz, names, solution, solution_text,
/// solution_text_format, cot_repeat_steps, statements, prompt, reward_model, difficulty), the prompt as plain
/// `prompt_text`, and the whole document as `text`.
std::string to_jsonl_row(const KkPuzzle& puzzle);

}  // namespace mantissa::text
