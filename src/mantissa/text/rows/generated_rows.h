// Rows that are made from their numbers instead of being read: "kk" in place of files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mantissa::text {

/// The rows of a generator: the Knights-and-Knaves puzzles of text/puzzles. Row i depends only on its number
/// and on the members other than `count`, so a smaller count has the first rows of a larger one.
struct GeneratedRows {
  std::uint64_t seed = 1;
  std::int64_t people_min = 2, people_max = 8;  // that a question is about
  bool held_out = false;                        // those that no training rows repeat, whatever their seed
  std::int64_t count = 1;

  /// Returns row `number` as a line of JSON, with the fields of a row of Logic-RL.
  std::string json(std::int64_t number) const;
  /// Returns the document of row `number` for pretraining.
  std::string document(std::int64_t number) const;
  /// Returns the place of row `number` for messages: "puzzle 17" or "held-out puzzle 17".
  std::string where(std::int64_t number) const;
  /// Returns what all rows are for messages: "the puzzles of kk" or "held-out puzzles".
  std::string name() const;
};

/// Returns true for the name of a generator in place of a file.
bool names_generator(const std::string& source);

}  // namespace mantissa::text
