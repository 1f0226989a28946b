// A data set as one stream of token ids cut into rows, and the order in which rows are taken.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace mantissa::text {

/// The tokens of one optimizer step's rows: `rows` × (sequence_length + 1) ids; row r's inputs are its first
/// sequence_length ids, its targets the last sequence_length. `origin[r]`: index of the row in the data set.
struct StepData {
  std::int64_t rows = 0;
  std::int64_t sequence_length = 0;
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> origin;
};

/// Token ids held once, and the rows they form: sequence j is ids [j·T, j·T + T], neighbours share one. The
/// last sequences are held out for validation where asked. Step s takes the next `global_batch_size` of the
/// training sequences, wrapping at the end, also within a batch; with `shuffle` each epoch is a permutation
/// that depends on (seed, epoch) alone.
class Dataset {
 public:
  struct Options {
    std::int64_t sequence_length = 256;
    bool shuffle = true;
    double validation = 0;  // share of the sequences, the last ones; at least one where > 0
    std::uint64_t seed = 1;
  };
  /// Throws ConfigError or FileError where there is not one whole training sequence.
  Dataset(std::vector<std::int32_t> ids, const Options& options, std::string name);

  std::int64_t training_rows() const;
  std::int64_t validation_rows() const;
  /// The rows of attempt `step` (from 1). Depends on the options and `step` only.
  StepData step(std::int64_t step, std::int64_t global_batch_size) const;
  /// Validation rows [first, first + count).
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
