// Data in memory, and the puzzles of the built-in generator.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace mantissa::api {

/// A label that is not predicted, as in PyTorch.
inline constexpr std::int32_t kIgnoredLabel = -100;

/// A row of token ids. Labels and weights are aligned with the ids: the model predicts labels[t] from the ids
/// before t, and the loss counts this prediction weights[t] times. The first label and weight are unused.
struct Row {
  std::vector<std::int32_t> ids;          // 2 to data.sequence_length + 1, each below the model's vocab_size
  std::vector<std::int32_t> labels = {};  // kIgnoredLabel: not predicted; empty: the ids
  std::vector<float> weights = {};        // finite, at least 0; empty: 1 for each
};

/// Data in memory, in place of the config's data.source. Set exactly one of `tokens`, `rows` and `next`.
struct Data {
  std::vector<std::int32_t> tokens = {};  // one stream, split into sequences like files
  std::vector<Row> rows = {};             // separate rows; data.shuffle and data.validation apply
  /// Returns the batch.global_batch_size rows of `step`, from 1. Called once before each step, on the thread
  /// that called train(). A resumed run requests only the remaining steps; it has the same bits if the rows
  /// of a step depend only on its number. An exception ends the run, as one from an event does.
  std::function<std::vector<Row>(std::int64_t step)> next = {};
  std::vector<Row> held_out = {};  // replaces the rows that data.validation would hold out
};

struct PuzzleOptions {
  std::int64_t count = 10;
  int people_min = 2, people_max = 8;
  std::uint64_t seed = 1;
  bool held_out = false;
  std::string style = "short";  // or "logic-rl"
};
/// Returns Knights-and-Knaves puzzles, one JSON object each.
std::vector<std::string> puzzles(const PuzzleOptions& options);
/// Writes them to the file `out`, one on each line. Throws FileError if `out` exists, unless `overwrite`, and
/// ResourceError if the disk is full; the old file then keeps its contents.
void write_puzzles(const PuzzleOptions& options, const std::filesystem::path& out, bool overwrite = false);

}  // namespace mantissa::api
