// Data in memory, and the puzzles of the built-in generator.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace mantissa::api {

/// A label that is not predicted, as in PyTorch.
inline constexpr std::int32_t kIgnoredLabel = -100;

/// A row of token ids. Labels and weights are aligned with the ids: the model predicts labels[t] after the
/// ids before t, and the loss counts that prediction weights[t] times. The first label and weight have no
/// prediction.
struct Row {
  std::vector<std::int32_t> ids;          // 2 to data.sequence_length + 1, each below the model's vocab_size
  std::vector<std::int32_t> labels = {};  // kIgnoredLabel: not predicted; empty: the ids
  std::vector<float> weights = {};        // finite, at least 0; empty: 1 for each
};

/// Data in memory, which take the place of the config's data.source. Give one of `tokens`, `rows` and `next`.
struct Data {
  std::vector<std::int32_t> tokens = {};  // one stream, cut into sequences as files are
  std::vector<Row> rows = {};             // rows of their own; data.shuffle and data.validation count
  /// Returns the batch.global_batch_size rows of a step, from 1. Called once for each step, before it, on the
  /// thread that called train(). A resumed run asks for the steps that are left, so that it has the same bits
  /// if the rows of a step depend on its number alone. An exception ends the run as one of an event does.
  std::function<std::vector<Row>(std::int64_t step)> next = {};
  std::vector<Row> held_out = {};  // in place of the share of data.validation
};

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
