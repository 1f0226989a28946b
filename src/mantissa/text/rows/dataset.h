// A data set (one stream of token ids split into rows, separate rows, or a source of the rows of each step),
// and the order of its rows in training.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/text/rows/row.h"
#include "mantissa/text/rows/row_order.h"
#include "mantissa/text/rows/row_store.h"

namespace mantissa::text {

/// Returns the number of `rows` that a share holds out: at least one if it is above 0.
std::int64_t held_out_rows(std::int64_t rows, double share);

/// Sequence j of a stream is ids [j·T, j·T + T] with T = sequence_length, so neighbours share one id. The
/// last sequences are held out if validation is requested. Each step uses the next `global_batch_size`
/// training sequences and wraps at the end, also within a batch. With `shuffle` each epoch is a permutation
/// that depends only on (seed, epoch). With `rwkv_walk` every epoch is the walk of RwkvWalk, over the rows
/// below its prime; the other rows are unused. With `carries` the rows of one source form as many streams of
/// successive rows as a batch has places, and each place of the batches has the rows of its stream: with R
/// rows and B places, place i of step s has row i·⌊R/B⌋ + (s − 1) mod ⌊R/B⌋. Several sources are mixed by
/// their weights; each has its own epochs, order and held-out rows.
class Dataset {
 public:
  struct Options {
    std::int64_t sequence_length = 256;
    bool shuffle = true;
    double validation = 0;  // share of the sequences, from the end; at least one if > 0
    std::uint64_t seed = 1;
    bool rwkv_walk = false;        // of one source
    std::int64_t magic_prime = 0;  // of the walk; 0: magic_prime_below() the rows
    bool carries = false;          // successive rows of one source, in the same place of successive batches
    bool packs = false;            // a batch has packs of consecutive rows instead of rows (row_order.h)
    std::int64_t first_step = 0;   // of a stage of a run: the steps before it
    std::int64_t first_sequence = 0;  // the rows of all stages before it
    std::int64_t earlier_steps = 0;   // of a run that this one continues: its rows come first
  };
  /// A stream of ids. Throws ConfigError if an option is out of range or the ids form less than one training
  /// sequence.
  Dataset(std::vector<std::int32_t> ids, const Options& options, std::string name);
  /// Rows instead of sequences. All must pass check_row(). Throws ConfigError as above.
  Dataset(std::vector<Row> rows, const Options& options, std::string name);
  /// The rows of `parts`, one or several. Throws ConfigError as above, and for weights that are not above 0.
  struct WeightedRows {
    std::shared_ptr<const RowStore> rows;
    double weight = 1;
    std::string name = {};  // for messages; empty: the data's
  };
  Dataset(std::vector<WeightedRows> parts, const Options& options, std::string name);
  /// Rows from `source`, in its order. step() checks them, with `vocabulary`. Throws ConfigError if an option
  /// is out of range.
  Dataset(RowSource source, std::int64_t vocabulary, const Options& options, std::string name);

  /// Holds out `rows` instead of a share; all other rows are then for training. All must pass check_row().
  void hold_out(std::vector<Row> rows) { hold_out(listed(std::move(rows))); }
  void hold_out(std::shared_ptr<const RowStore> rows);

  /// Makes this the first stage of a run: `later` have the rows of the steps after their Options::first_step.
  void add_stages(std::vector<Dataset> later) { later_ = std::move(later); }
  /// Returns the stage of attempt `step` (from 1).
  const Dataset& at_step(std::int64_t step) const;
  /// Returns the number of ids of a stream of one source before those that are held out.
  std::int64_t training_end() const;
  /// Leaves out the training rows of a stream of one source after id `end`, which another stage holds out.
  /// Throws ConfigError if none is left.
  void train_below(std::int64_t end);
  /// Begins with training row `row`, counted over all epochs, instead of 0.
  void begin_at(std::int64_t row) { first_row_ = row; }
  std::int64_t first_row() const { return first_row_; }

  /// Tells of rows of the files that are not among the data, as no token of them is trained.
  void leave_out(std::int64_t rows) { left_out_ = rows; }
  std::int64_t left_out() const { return left_out_; }

  /// Returns the number of training rows; 0 with a source.
  std::int64_t training_rows() const;
  std::int64_t validation_rows() const;
  /// Returns the rows of attempt `step` (from 1) of its stage, which depend only on the data, the options and
  /// the arguments: `global_batch_size` rows or packs. Throws ConfigError if no token of the step has a
  /// weight, or if a source returns other than `global_batch_size` rows or a row that does not pass
  /// check_row().
  StepData step(std::int64_t step, std::int64_t global_batch_size) const;
  /// Returns rows [first, first + count) of those for training, in the order of the data. Throws ConfigError
  /// if they are out of range.
  StepData training(std::int64_t first, std::int64_t count) const;
  /// Returns held-out rows [first, first + count). Throws ConfigError if they are out of range or no token of
  /// them has a weight.
  StepData validation(std::int64_t first, std::int64_t count) const;
  std::size_t bytes() const;
  /// Return the lengths of the documents of all sources, and the ids in all rows without padding.
  std::vector<std::int64_t> document_lengths() const;
  std::int64_t ids_in_rows() const;
  const std::string& name() const;

  /// One of the sources that are mixed, or the only one.
  struct SourceCounts {
    std::string name;
    double share = 1;                     // of the training rows, by the weights
    std::int64_t rows = 0, held_out = 0;  // for training, and held out by a share
    std::int64_t tokens = 0;
  };
  /// Returns the sources of this stage in order; none for rows from a function.
  std::vector<SourceCounts> source_counts() const;
  /// Returns the training rows, counted over all epochs, that the first `steps` steps of this stage use.
  std::int64_t rows_of_steps(std::int64_t steps, std::int64_t global_batch_size) const;

 private:
  /// A source and its split. Rows in between are not used.
  struct Source {
    std::shared_ptr<const RowStore> rows;
    std::string name;
    std::int64_t usable = 0, held_out = 0;  // the first and the last rows
    std::int64_t train = 0;                 // the first ones of the usable rows; all, unless a walk has fewer
    std::int64_t origin = 0;                // number of its first row among those of all sources
  };
  void check_options() const;
  /// Splits the rows of each source into training and held-out ones.
  void split();
  /// Sets the number and the order of the training rows, and their packs.
  void arrange();
  /// Returns the walk over the rows of the only source. Throws ConfigError if the prime does not fit them.
  RwkvWalk walk() const;
  StepData from_source(std::int64_t step, std::int64_t global_batch_size) const;
  /// Returns rows [first, first + count) of the training or held-out rows of all sources.
  StepData rows_of(std::int64_t first, std::int64_t count, std::int64_t Source::*rows,
                   std::int64_t (*begin)(const Source&)) const;
  /// Appends the row at `place`.
  void append(const RowPlace& place, StepData& data) const;
  StepData from_packs(std::int64_t step, std::int64_t global_batch_size) const;
  StepData from_streams(std::int64_t step, std::int64_t global_batch_size) const;

  std::vector<Source> sources_;
  std::vector<double> weights_;  // of the sources
  RowOrder order_;
  std::shared_ptr<Packs> packs_;                   // of the training rows, if options_.packs
  std::shared_ptr<const RowStore> held_out_rows_;  // of hold_out()
  RowSource source_;
  std::int64_t vocabulary_ = 0;  // of source_'s ids
  Options options_;
  std::string name_;
  std::int64_t train_ = 0, held_out_ = 0;  // of all sources
  std::int64_t first_row_ = 0;             // of a stage, among its training rows over all epochs
  std::int64_t left_out_ = 0;
  std::vector<Dataset> later_;  // stages
};

}  // namespace mantissa::text
