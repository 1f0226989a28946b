// Training data: the puzzles of the built-in generator.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mantissa::api {

struct PuzzleOptions {
  std::int64_t count = 10;
  int people_min = 2, people_max = 8;
  std::uint64_t seed = 1;
  bool held_out = false;
  std::string style = "short";  // or "logic-rl"
};
/// Knights-and-Knaves puzzles, one JSON object each.
std::vector<std::string> puzzles(const PuzzleOptions& options);

}  // namespace mantissa::api
