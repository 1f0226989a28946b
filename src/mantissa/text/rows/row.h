// Rows of token ids with a label and a weight for each token, and the rows of one optimizer step.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "mantissa/core/tensor/row_tokens.h"

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

/// Rows of one optimizer step, a validation or an evaluation, one after the other without padding. Row r has
/// length(r) inputs and one more id, after which nothing is predicted. `origin[r]` is the row's index in the
/// data, for messages.
struct StepData {
  std::int64_t rows = 0;
  std::int64_t sequence_length = 0;  // of every row, or the largest
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> origin;
  // For each input, or both empty: each row's targets are then its ids from the second one on, with weight 1.
  std::vector<std::int32_t> targets = {};  // −1: none
  std::vector<float> weights = {};         // 0 without a target
  // For each row the lengths of its inputs' parts, which attend only to themselves (RowTokens); an
  // empty entry, or no entries: one part.
  std::vector<std::vector<std::int64_t>> documents = {};
  // The first input of each row, and the number of inputs; empty: every row has sequence_length inputs.
  std::vector<std::int64_t> begins = {};
  // The first row of each pack, and `rows`; empty: every row is one. A pack has at most sequence_length
  // inputs, and is what batch sizes count.
  std::vector<std::int64_t> packs = {};
  std::uint64_t sequence = 0;  // of the first row: the key of its random numbers; the next rows have the next
  // Each row continues that of the same number in the step before: `position` tokens of its stream are behind
  // it.
  bool carries = false;
  std::int64_t position = 0;

  bool weighted() const { return !weights.empty(); }
  /// Returns the first input of row r, also for r = rows, and the number of its inputs.
  std::int64_t begin(std::int64_t r) const;
  std::int64_t length(std::int64_t r) const { return begin(r + 1) - begin(r); }
  /// Returns the number of inputs of all rows, and of the longest.
  std::int64_t tokens() const { return begin(rows); }
  std::int64_t longest() const;
  /// Returns the number of packs, and the first row of a pack, also for the one after the last.
  std::int64_t items() const { return packs.empty() ? rows : static_cast<std::int64_t>(packs.size()) - 1; }
  std::int64_t item_row(std::int64_t item) const;
  /// Returns the inputs of row r with their targets, weights and parts.
  RowTokens row(std::int64_t r) const;
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

/// Appends `row` with its targets and weights. All rows of `step` must come from this function.
void append_row(const Row& row, std::int64_t origin, StepData& step);

/// Divides the rows into packs, in order: a row begins a pack if it does not fit the one before.
void pack_rows(StepData& step);

/// Throws ConfigError, with `where`, if the row has fewer than 2 or more than sequence_length + 1 ids, an id
/// or label outside the vocabulary, a number of labels or weights other than that of the ids or 0, a weight
/// that is negative or not finite, or documents shorter than 2 ids or with other than the row's ids.
void check_row(const Row& row, std::int64_t sequence_length, std::int64_t vocabulary,
               const std::string& where);

}  // namespace mantissa::text
