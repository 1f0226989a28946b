// Rows of token ids with a label and a weight for each token, and the rows of one optimizer step.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace mantissa::text {

/// A label that is not predicted, as in PyTorch.
inline constexpr std::int32_t kIgnoredLabel = -100;

/// One row. Labels and weights are aligned with the ids: the model predicts labels[t] after ids[0 … t − 1],
/// and the loss counts that prediction weights[t] times. The first label and weight have no prediction.
struct Row {
  std::vector<std::int32_t> ids;          // at least two
  std::vector<std::int32_t> labels = {};  // kIgnoredLabel: not predicted; empty: the ids
  std::vector<float> weights = {};        // finite, at least 0; empty: 1 for each
};

/// The rows of optimizer step `step`, from 1.
using RowSource = std::function<std::vector<Row>(std::int64_t step)>;

/// The tokens of one optimizer step: `rows` × (sequence_length + 1) ids. Row r's inputs are its first
/// sequence_length ids. `origin[r]` is the row's index in the data set.
struct StepData {
  std::int64_t rows = 0;
  std::int64_t sequence_length = 0;
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> origin;
  // [rows, sequence_length]; both are empty where each row's targets are its last sequence_length ids, of
  // weight 1.
  std::vector<std::int32_t> targets = {};  // −1: none
  std::vector<float> weights = {};         // 0 where there is no target

  bool weighted() const { return !weights.empty(); }
  /// The target of token `t` of row `r`, or −1.
  std::int32_t target(std::int64_t r, std::int64_t t) const;
  /// Row r: its inputs, the target after each of them, and the weights of these; empty: 1 each.
  std::span<const std::int32_t> ids_of(std::int64_t r) const;
  std::span<const std::int32_t> targets_of(std::int64_t r) const;
  std::span<const float> weights_of(std::int64_t r) const;
  /// The number of targets of the first `first` rows.
  std::int64_t predicted(std::int64_t first) const;
  std::int64_t predicted() const { return predicted(rows); }
  /// The sum of their weights, in double in their order.
  double total_weight(std::int64_t first) const;
  double total_weight() const { return total_weight(rows); }
};

StepData empty_step(std::int64_t rows, std::int64_t sequence_length);

/// Appends `row` to `step`, which holds no row without targets of its own. A row shorter than sequence_length
/// + 1 is padded with ids 0 that nothing is predicted after.
void append_row(const Row& row, std::int64_t origin, StepData& step);

/// Throws ConfigError, naming `where`, for a row of fewer than two ids or more than sequence_length + 1, ids
/// and labels outside the vocabulary, labels or weights of another number than the ids, and weights that are
/// negative or not finite.
void check_row(const Row& row, std::int64_t sequence_length, std::int64_t vocabulary,
               const std::string& where);

}  // namespace mantissa::text
