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
/// and the loss counts that prediction weights[t] times. The first label and weight are unused.
struct Row {
  std::vector<std::int32_t> ids;          // at least two
  std::vector<std::int32_t> labels = {};  // kIgnoredLabel: not predicted; empty: the ids
  std::vector<float> weights = {};        // finite, at least 0; empty: 1 for each
  /// Lengths of parts, at least 2, that sum to the number of ids. Each attends only to itself, at positions
  /// from 0, and its first id is not predicted. Empty: one part.
  std::vector<std::int64_t> documents = {};
};

/// Returns the rows of optimizer step `step`, from 1.
using RowSource = std::function<std::vector<Row>(std::int64_t step)>;

/// Rows of one optimizer step, a validation or an evaluation: `rows` × (sequence_length + 1) ids. Row r's
/// inputs are its first sequence_length ids. `origin[r]` is the row's index in the data, for messages.
struct StepData {
  std::int64_t rows = 0;
  std::int64_t sequence_length = 0;
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> origin;
  // [rows, sequence_length], or both empty: each row's targets are then its last sequence_length ids, with
  // weight 1.
  std::vector<std::int32_t> targets = {};  // −1: none
  std::vector<float> weights = {};         // 0 without a target
  // For each row the lengths of its inputs' parts, which attend only to themselves (runtime::BatchRow); an
  // empty entry, or no entries: one part.
  std::vector<std::vector<std::int64_t>> documents = {};

  bool weighted() const { return !weights.empty(); }
  /// Returns the target of token `t` of row `r`, or −1.
  std::int32_t target(std::int64_t r, std::int64_t t) const;
  /// Return the inputs of row r, the target after each input, and the targets' weights (empty: 1 each).
  std::span<const std::int32_t> ids_of(std::int64_t r) const;
  std::span<const std::int32_t> targets_of(std::int64_t r) const;
  std::span<const float> weights_of(std::int64_t r) const;
  /// Returns the lengths of the parts of row r's inputs; empty: one part.
  std::span<const std::int64_t> documents_of(std::int64_t r) const;
  /// Returns the number of targets of the first `first` rows.
  std::int64_t predicted(std::int64_t first) const;
  std::int64_t predicted() const { return predicted(rows); }
  /// Returns the sum of their weights, added in order in double.
  double total_weight(std::int64_t first) const;
  double total_weight() const { return total_weight(rows); }
  /// Returns the sum of the weights of row r.
  double weight_of(std::int64_t r) const;
};

/// Returns a step to which `rows` rows must be appended.
StepData empty_step(std::int64_t rows, std::int64_t sequence_length);

/// Appends `row` with its targets and weights. All rows of `step` must come from this function. Pads a row
/// shorter than sequence_length + 1 with ids 0, without targets; after documents, the padding is one more.
void append_row(const Row& row, std::int64_t origin, StepData& step);

/// Throws ConfigError, with `where`, if the row has fewer than 2 or more than sequence_length + 1 ids, an id
/// or label outside the vocabulary, a number of labels or weights other than that of the ids or 0, a weight
/// that is negative or not finite, or documents shorter than 2 ids or with other than the row's ids.
void check_row(const Row& row, std::int64_t sequence_length, std::int64_t vocabulary,
               const std::string& where);

}  // namespace mantissa::text
