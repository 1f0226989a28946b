// metrics.jsonl: one JSON object a line for every logged step, and for every validation.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/report/append_file.h"

namespace mantissa::report {

/// What is known of one optimizer step.
struct StepMetrics {
  std::int64_t step = 0;    // from 1
  double loss = 0;          // mean over the step's tokens, unscaled
  std::int64_t tokens = 0;  // since the start
  double grad_norm = 0;     // unscaled, before clipping
  double lr = 0;
  std::optional<double> loss_scale{};  // the one used in this step; nothing where the policy has none
  bool skipped = false;
  double tokens_per_second = 0;                        // of the whole step
  double peak_share = 0;                               // of the machine's measured arithmetic peak, 0 to 1
  double seconds = 0;                                  // of the whole step
  std::vector<std::pair<std::string, double>> more{};  // of the objective, by name
};

/// {"step":1,"loss":5.54517744,…} without the end of line. loss and grad_norm have 9 significant digits; a
/// value that is not finite is null, because JSON has no other word for it.
std::string metrics_line(const StepMetrics& metrics);
std::string validation_line(std::int64_t step, double loss);

/// Whether each step of a metrics.jsonl was skipped, in order. Throws FileError where a line is no metrics
/// line or a step is missing.
std::vector<bool> read_skipped(const std::filesystem::path& path);

/// Appends lines, each at once.
class MetricsWriter {
 public:
  /// Keeps of an existing file the lines up to `resumed_step`, none at 0: what came after is about to happen
  /// again. A last line that a crash cut short goes too. Throws FileError where a kept line is no metrics
  /// line.
  explicit MetricsWriter(const std::filesystem::path& path, std::int64_t resumed_step = 0);

  /// Throw ResourceError where the disk is full.
  void write(const StepMetrics& metrics);
  /// Writes nothing where the file has this step's validation already.
  void write_validation(std::int64_t step, double loss);
  /// Whether the file has the validation of `step`, the last one there is.
  bool has_validation(std::int64_t step) const { return validated_ == step; }

 private:
  std::int64_t validated_ = 0;  // the last step that was
  AppendFile file_;
};

}  // namespace mantissa::report
