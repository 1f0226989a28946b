// observations.jsonl: the values that log.observe selects, every log.observe_interval steps.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/engine/runtime/observer.h"
#include "mantissa/report/metrics.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/train/steps/trainer.h"

namespace mantissa::run {

/// Returns the line of a value in a step, without a newline. Figures that do not apply are absent.
std::string observation_line(std::int64_t step, const plan::Program& program,
                             const runtime::ObservedValue& value);

class Observations {
 public:
  /// Continues the file of `out` after `step`. Writes no file if nothing is selected.
  Observations(const config::RunConfig& config, const std::filesystem::path& out, std::int64_t step);

  /// Says that opening removed damaged lines, or is empty.
  std::string note() const { return log_ ? log_->note() : ""; }
  /// Returns a sentence for each selection that matches nothing in the program.
  std::vector<std::string> unmatched(const plan::Program& program) const;
  /// Observes the next step of `trainer`, if it is due.
  void begin(train::Trainer& trainer);
  /// Writes what was seen of step `step`, or drops it if the step did not complete.
  void end(train::Trainer& trainer, bool completed);
  /// Returns when all lines are on the disk.
  void sync();

 private:
  std::int64_t interval_;
  std::vector<precision::Rule> selected_;
  std::optional<report::StepLog> log_;
  std::optional<runtime::Observer> observer_;
};

}  // namespace mantissa::run
