// Knights and Knaves puzzles. Exhaustive search proves that each has exactly one solution, and each comes
// with a short correct reasoning (as in Logic-RL's training data).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/text/puzzles/kk_statement.h"

namespace mantissa::text {

struct KkPuzzle {
  std::vector<std::string> names;
  std::vector<KkStatement> statements;  // of each person
  std::uint32_t knights = 0;            // the unique solution, one bit per person
  std::string quiz;                     // the puzzle in words
  std::string prompt;                   // the model's input, up to and including "Assistant:"
  std::vector<std::string> reasoning;   // sentences
  std::string answer;                   // "(1) Zoey is a knight\n(2) Oliver is a knave"

  /// Returns prompt, reasoning and answer with their tags: a training document with reward 3.
  std::string text() const;
};

enum class KkSplit : std::uint8_t { train, test };

/// The wording of a puzzle; it does not change the puzzle. `brief`: the numbered statements in fixed words.
/// `logic_rl`: the rules of the island, varied phrases for each statement, and instructions for the answer,
/// as in Logic-RL's rows.
enum class KkStyle : std::uint8_t { brief, logic_rl };

/// Parses "short" or "logic-rl". Throws ConfigError.
KkStyle parse_kk_style(const std::string& name);

struct KkOptions {
  std::uint64_t seed = 1;
  int people_min = 2;
  int people_max = 8;
  std::int64_t count = 1;
  KkSplit split = KkSplit::train;
  KkStyle style = KkStyle::brief;
  int depth = 1;  // of statements, 1 to 3; 1 joins two leaves, as in Logic-RL
};

/// Generates puzzles. Puzzle i depends only on the options and i, so a smaller `count` gives a prefix of a
/// larger one. The number of people is uniform in [people_min, people_max]. Statements are not about their
/// speaker, except for two-part statements in puzzles of two, which are about both people.
///
/// A hash of all statements of a puzzle, without the names, assigns one puzzle in eight to the test split.
/// For any two seeds, no puzzle of the test split has the statements of one in the train split.
///
/// Throws ConfigError for sizes outside 2 … 8, a negative count, or a depth outside 1 … 3.
std::vector<KkPuzzle> generate(const KkOptions& options);

/// Returns puzzle `number` of generate(), which `count` does not limit.
KkPuzzle generate_one(const KkOptions& options, std::int64_t number);

/// Returns one line of JSON with the fields of Logic-RL's rows (quiz, names, solution, solution_text,
/// solution_text_format, cot_repeat_steps, statements, prompt, reward_model, difficulty), the prompt as plain
/// `prompt_text`, and the whole document as `text`.
std::string to_jsonl_row(const KkPuzzle& puzzle);

}  // namespace mantissa::text
