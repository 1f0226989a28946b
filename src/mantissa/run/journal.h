// What a run writes down of its steps: metrics.jsonl and TensorBoard events.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "mantissa/config/run_config.h"
#include "mantissa/report/metrics.h"
#include "mantissa/report/tensorboard.h"
#include "mantissa/train/trainer.h"

namespace mantissa::run {

class Journal {
 public:
  /// Goes on with the files of `out` after `step`.
  Journal(const config::RunConfig& config, const std::filesystem::path& out, std::int64_t step);

  /// Writes a step that is due by log.interval, and the last.
  void write(const train::StepReport& step);
  /// Writes the loss on held-out rows; one that is not finite goes to metrics.jsonl alone.
  void write_validation(std::int64_t step, double loss);
  /// Returns true where the validation of `step` is the last one that was written.
  bool has_validation(std::int64_t step) const { return metrics_.has_validation(step); }

 private:
  const config::RunConfig& config_;
  report::MetricsWriter metrics_;
  std::optional<report::TensorBoardWriter> board_;
};

}  // namespace mantissa::run
