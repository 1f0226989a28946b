// A data set (one stream of token ids split into rows, separate rows, or a source of the rows of each step),
// and the order of its rows in training.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mantissa/text/row.h"
#include "mantissa/text/row_order.h"

namespace mantissa::text {

/// Sequence j of a stream is ids [j·T, j·T + T] with T = sequence_length, so neighbours share one id. The
/// last sequences are held out if validation is requested. Each step uses the next `global_batch_size`
/// training sequences and wraps at the end, also within a batch. With `shuffle` each epoch is a permutation
/// that depends only on (seed, epoch).
class Dataset {
 public:
  struct Options {
    std::int64_t sequence_length = 256;
    bool shuffle = true;
    double validation = 0;  // share of the sequences, from the end; at least one if > 0
    std::uint64_t seed = 1;
    bool packs = false;  // of rows: a batch has packs of consecutive rows instead of rows (row_order.h)
  };
  /// A stream of ids. Throws ConfigError if an option is out of range or the ids form less than one training
  /// sequence.
  Dataset(std::vector<std::int32_t> ids, const Options& options, std::string name);
  /// Rows instead of sequences. All must pass check_row(). Throws ConfigError as above.
  Dataset(std::vector<Row> rows, const Options& options, std::string name);
  /// Rows from `source`, in its order. step() checks them, with `vocabulary`. Throws ConfigError if an option
  /// is out of range.
  Dataset(RowSource source, std::int64_t vocabulary, const Options& options, std::string name);

  /// Holds out `rows` instead of a share; all other rows are then for training. All must pass check_row().
  void hold_out(std::vector<Row> rows);

  /// Returns the number of training rows; 0 with a source.
  std::int64_t training_rows() const;
  std::int64_t validation_rows() const;
  /// Returns the rows of attempt `step` (from 1), which depend only on the data, the options and the
  /// arguments: `global_batch_size` rows or packs. Throws ConfigError if no token of the step has a weight,
  /// or if a source returns other than `global_batch_size` rows or a row that does not pass check_row().
  StepData step(std::int64_t step, std::int64_t global_batch_size) const;
  /// Returns held-out rows [first, first + count). Throws ConfigError if they are out of range or no token of
  /// them has a weight.
  StepData validation(std::int64_t first, std::int64_t count) const;
  std::size_t bytes() const;
  const std::string& name() const;
  std::int64_t tokens() const;

 private:
  void check_options() const;
  /// Splits `sequences` into training and held-out ones.
  void split(std::int64_t sequences);
  void find_packs();
  StepData from_source(std::int64_t step, std::int64_t global_batch_size) const;
  StepData empty(std::int64_t rows) const;
  StepData from_packs(std::int64_t step, std::int64_t global_batch_size) const;
  void append(std::int64_t row, StepData& data) const;

  std::vector<std::int32_t> ids_;
  std::vector<Row> rows_;           // includes the held-out share at the end
  std::vector<Row> held_out_rows_;  // of hold_out()
  RowSource source_;
  std::int64_t vocabulary_ = 0;  // of a source's ids
  Options options_;
  std::string name_;
  std::int64_t train_ = 0, held_out_ = 0;
  std::shared_ptr<Packs> packs_;  // of the training rows, if options_.packs
};

}  // namespace mantissa::text
