// metrics.jsonl, read step by step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

namespace mantissa::lab {

/// The metrics of a step, with those of its validation.
struct StepLine {
  std::int64_t step = 0;
  nlohmann::json metrics;
};

/// Returns a number of a line, or null if it is missing or not a number: metrics that are not finite are
/// null.
std::optional<double> number_in(const nlohmann::json& metrics, const char* key);

class MetricsFile {
 public:
  /// Throws FileError if the file cannot be read.
  explicit MetricsFile(const std::filesystem::path& path);

  /// Returns the next step, or null at the end. A truncated last line is ignored. Throws FileError if another
  /// line is not a metrics line, or if steps do not increase.
  std::optional<StepLine> next();

 private:
  std::optional<StepLine> read();

  std::filesystem::path path_;
  std::ifstream in_;
  std::int64_t number_ = 0;  // of the line
  std::optional<StepLine> ahead_;
};

}  // namespace mantissa::lab
