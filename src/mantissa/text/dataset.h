// A data set as one stream of token ids split into rows, and the order of the rows in training.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mantissa::text {

/// The tokens of one optimizer step: `rows` × (sequence_length + 1) ids. Row r's inputs are its first
/// sequence_length ids, its targets its last sequence_length. `origin[r]` is the row's index in the data set.
struct StepData {
  std::int64_t rows = 0;
  std::int64_t sequence_length = 0;
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> origin;
};

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

  std::int64_t training_rows() const;
  std::int64_t validation_rows() const;
  /// Returns the rows of attempt `step` (from 1). Depends only on the options and `step`.
  StepData step(std::int64_t step, std::int64_t global_batch_size) const;
  /// Returns validation rows [first, first + count).
  StepData validation(std::int64_t first, std::int64_t count) const;
  std::size_t bytes() const;
  const std::string& name() const;
  std::int64_t tokens() const;

 private:
  std::vector<std::int32_t> ids_;
  Options options_;
  std::string name_;
  std::int64_t train_ = 0, held_out_ = 0;
};

}  // namespace mantissa::text
