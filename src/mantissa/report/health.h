// The numeric health of a step as numbers with names: the lines of health.jsonl and the scalars of
// TensorBoard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/engine/runtime/health.h"
#include "mantissa/report/metrics.h"

namespace mantissa::report {

/// Returns the measurements of a parameter that are known, by name.
std::vector<std::pair<std::string_view, double>> health_values(const runtime::ParameterHealth& health);

/// Returns {"step":10,"health":{"model.norm.weight":{"updates_lost":0,…},…}} without a newline, with 9
/// significant digits.
std::string health_line(std::int64_t step, std::span<const runtime::ParameterHealth> health);

/// Returns scalars in few groups, by tag. "health/NAME" is that of all parameters: the mean over their
/// elements of a share, and the largest or smallest of a magnitude. "NAME/model.layers.*.mlp.up_proj.weight"
/// is the worst of the parameters whose names differ only in numbers: the largest share, say.
std::vector<std::pair<std::string, double>> health_scalars(std::span<const runtime::ParameterHealth> health);

/// Appends lines to health.jsonl, each written immediately.
class HealthWriter {
 public:
  /// Keeps the lines of an existing file up to `resumed_step`, as MetricsWriter does, or removes it for 0.
  /// The file begins with the first line that is written.
  explicit HealthWriter(std::filesystem::path path, std::int64_t resumed_step = 0);

  /// Writes nothing if `health` is empty. Throws ResourceError if the disk is full.
  void write(std::int64_t step, std::span<const runtime::ParameterHealth> health);
  /// Returns when all lines are on the disk.
  void sync();
  std::string note() const { return log_ ? log_->note() : ""; }

 private:
  std::filesystem::path path_;
  std::optional<StepLog> log_;
};

}  // namespace mantissa::report
