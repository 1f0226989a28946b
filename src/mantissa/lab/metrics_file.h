// metrics.jsonl, read step by step, and health.jsonl beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "mantissa/core/disk/lines.h"

namespace mantissa::lab {

/// The metrics of a step, with those of its validation.
struct StepLine {
  std::int64_t step = 0;
  nlohmann::json metrics;
};

/// Returns a number of a line, or null if it is missing or not a number: metrics that are not finite are
/// null.
std::optional<double> number_in(const nlohmann::json& metrics, const char* key);

/// A file of lines with a "step", which does not decrease.
class StepLines {
 public:
  /// Throws FileError if the file cannot be read.
  explicit StepLines(const std::filesystem::path& path);

  /// Returns the next step with the values of all its lines, or null at the end. A truncated last line is
  /// ignored. Throws FileError if another line is not an object with a step, or if steps do not increase.
  std::optional<StepLine> next();

 private:
  std::optional<StepLine> read();

  disk::LineReader lines_;
  std::optional<StepLine> ahead_;
};

/// join: the steps of metrics.jsonl get the "health" of the file health.jsonl beside it. Earlier versions
/// wrote it to metrics.jsonl, where it always counts.
enum class Health { skip, join };

class MetricsFile {
 public:
  /// Throws FileError if the file cannot be read. A run without measurements of health has no health.jsonl.
  explicit MetricsFile(const std::filesystem::path& path, Health health = Health::skip);

  /// Returns the next step of metrics.jsonl, as StepLines does.
  std::optional<StepLine> next();

 private:
  StepLines metrics_;
  std::optional<StepLines> health_;
  std::optional<StepLine> next_health_;
};

}  // namespace mantissa::lab
