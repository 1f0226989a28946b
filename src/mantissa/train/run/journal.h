// The log files of a run: metrics.jsonl, health.jsonl and TensorBoard events.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/report/health.h"
#include "mantissa/report/metrics.h"
#include "mantissa/report/tensorboard.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::run {

class Journal {
 public:
  /// Continues the files of `out` after `step`. `events` is the name of a new file for TensorBoard, which is
  /// not used without log.tensorboard.
  Journal(const config::RunConfig& config, const std::filesystem::path& out, std::int64_t step,
          const std::string& events);

  /// Writes a step if it is due by log.interval, or the last. Keeps others until the next that is written.
  void write(const train::StepReport& step);
  /// Writes the newest steps that were kept, to show how a run came to its end.
  void write_kept();
  /// Writes the measurements on held-out data. A non-finite number is written only to metrics.jsonl.
  void write_validation(std::int64_t step, const train::Validation& validation);
  /// Returns when all lines are on the disk.
  void sync();
  /// Returns sentences about lines of the files that a crash had damaged.
  std::vector<std::string> notes() const;

 private:
  void write_line(const train::StepReport& step);
  /// Returns true if TensorBoard groups the metrics of the objective.
  bool groups() const;

  const config::RunConfig& config_;
  std::deque<train::StepReport> kept_;
  report::MetricsWriter metrics_;
  report::HealthWriter health_;
  std::optional<report::TensorBoardWriter> board_;
};

}  // namespace mantissa::run
