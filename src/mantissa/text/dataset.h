// A data set: one stream of token ids split into rows, rows of their own, or rows that come step by step. And
// the order of the rows in training.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mantissa/text/row.h"

namespace mantissa::text {

/// Token ids, stored once, and their rows: sequence j is ids [j·T, j·T + T], so neighbours share one id. The
/// last sequences are held out if validation is requested. Step s takes the next `global_batch_size` training
/// sequences and wraps at the end, also within a batch. With `shuffle` each epoch is a permutation that
/// depends only on (seed, epoch).
class Dataset {
 public:
  struct Options {
    std::int64_t sequence_length = 256;
    bool shuffle = true;
    double validation = 0;  // share of the sequences, from the end; at least one if > 0
    std::uint64_t seed = 1;
  };
  /// Throws ConfigError if an option is out of range or the ids form less than one training sequence.
  Dataset(std::vector<std::int32_t> ids, const Options& options, std::string name);
  /// The rows in place of sequences. All must pass check_row(). Throws ConfigError as above.
  Dataset(std::vector<Row> rows, const Options& options, std::string name);
  /// The rows of each step come from `source`, in its order; they are checked then, against `vocabulary`.
  Dataset(RowSource source, std::int64_t vocabulary, const Options& options, std::string name);

  /// Holds out `rows` instead of a share, so that all others are for training. All must pass check_row().
  void hold_out(std::vector<Row> rows);

  /// The number of training rows; 0 where they come step by step.
  std::int64_t training_rows() const;
  std::int64_t validation_rows() const;
  /// Returns the rows of attempt `step` (from 1). Depends only on the options and `step`. Throws ConfigError
  /// if the rows that a source gave do not pass check_row() or are not `global_batch_size`, or no token of
  /// the step has a weight.
  StepData step(std::int64_t step, std::int64_t global_batch_size) const;
  /// Returns validation rows [first, first + count).
  StepData validation(std::int64_t first, std::int64_t count) const;
  std::size_t bytes() const;
  const std::string& name() const;
  std::int64_t tokens() const;

 private:
  void check_options() const;
  /// Splits `sequences` into training and held-out ones.
  void split(std::int64_t sequences);
  StepData from_source(std::int64_t step, std::int64_t global_batch_size) const;
  void append(std::int64_t row, StepData& data) const;

  std::vector<std::int32_t> ids_;
  std::vector<Row> rows_;           // with the share that is held out at the end
  std::vector<Row> held_out_rows_;  // of hold_out()
  RowSource source_;
  std::int64_t vocabulary_ = 0;  // of what the source gives
  Options options_;
  std::string name_;
  std::int64_t train_ = 0, held_out_ = 0;
};

}  // namespace mantissa::text
