// The hash of the rows that a run trains on: a resumed run needs the same ones.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "mantissa/setup/config/run_config.h"
#include "mantissa/text/rows/dataset.h"

namespace mantissa::run {

/// Returns the xxh64 of the ids, targets and weights of the training rows of `data`, which are those of
/// `config` or of one of its stages, with the number of rows, as 16
/// hexadecimal digits; "" without rows, such as those of a callback, and for generated rows, whose number
/// follows the number of steps. All rows count if they have at most 2^24 ids together; otherwise 1024 of
/// them, evenly spaced, so that data larger than memory are not read as a whole. Throws FileError if a token
/// file cannot be read.
std::string hash_of_rows(const config::RunConfig& config, const text::Dataset& data);

/// The hashes of the rows of all stages. Hashing needs memory, so a run does it before it allocates its own.
class RowHashes {
 public:
  /// Hashes the rows of the steps after `step`. `data` is that of the task, or null.
  RowHashes(const config::RunConfig& config, const text::Dataset* data, std::int64_t step);

  /// Returns the hash of the rows at `step`, which is not before that of the constructor.
  std::string at_step(std::int64_t step) const;

 private:
  const text::Dataset* data_;
  std::map<const text::Dataset*, std::string> of_;
};

}  // namespace mantissa::run
