// metrics.jsonl: one JSON object per line, for every logged step and every validation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/core/disk/append_file.h"

namespace mantissa::report {

/// The metrics of one optimizer step.
struct StepMetrics {
  std::int64_t step = 0;    // from 1
  double loss = 0;          // mean over the step's tokens, unscaled
  std::int64_t tokens = 0;  // since the start
  double grad_norm = 0;     // unscaled, before clipping
  double lr = 0;
  std::optional<double> loss_scale{};  // the scale used in this step; null under a policy without one
  bool skipped = false;
  double tokens_per_second = 0;                        // of the whole step
  double peak_share = 0;                               // of the measured peaks of the units, 0 to 1
  double seconds = 0;                                  // of the whole step
  std::vector<std::pair<std::string, double>> more{};  // of the objective, by name
};

/// Returns {"step":1,"loss":5.54517744,…} without a newline. loss and grad_norm have 9 significant digits. A
/// non-finite value becomes null, since JSON cannot represent it.
std::string metrics_line(const StepMetrics& metrics);
/// Returns {"step":100,"validation_loss":1.5,…}, also with null as the loss, and the numbers of `more`.
std::string validation_line(std::int64_t step, double loss,
                            std::span<const std::pair<std::string, double>> more = {});

/// A file of lines with a "step", to append to.
struct StepLog {
  disk::AppendFile file;
  std::int64_t damaged = 0;  // lines with zeros, which a crash had left, and which were removed
  /// Returns a sentence about them, or "".
  std::string note() const;
};

/// Opens a file of lines with a "step" to append: keeps those up to `step`, or none for 0, and removes lines
/// that a crash truncated or filled with zeros. Throws FileError if a kept line has no step, if the file
/// cannot be read or written, or if it is a link or not a regular file.
StepLog append_after(const std::filesystem::path& path, std::int64_t step);

/// Returns for each step of a metrics.jsonl, in order, whether it was skipped. Throws FileError if a line is
/// not a metrics line or a step is missing.
std::vector<bool> read_skipped(const std::filesystem::path& path);

/// Appends lines, each written immediately.
class MetricsWriter {
 public:
  /// Keeps the lines of an existing file up to `resumed_step`, or none for 0: later steps run again. Throws
  /// like append_after().
  explicit MetricsWriter(const std::filesystem::path& path, std::int64_t resumed_step = 0);

  /// Both functions throw ResourceError if the disk is full.
  void write(const StepMetrics& metrics);
  /// Writes nothing if the file already has this step's validation.
  void write_validation(std::int64_t step, double loss,
                        std::span<const std::pair<std::string, double>> more = {});
  /// Returns when all lines are on the disk.
  void sync() { log_.file.sync(); }
  std::string note() const { return log_.note(); }

 private:
  std::optional<std::int64_t> validated_;  // the last step with a validation line
  StepLog log_;
};

}  // namespace mantissa::report
