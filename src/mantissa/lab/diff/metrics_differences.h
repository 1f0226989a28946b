// The differences between two files metrics.jsonl and the files health.jsonl beside them, step by step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace mantissa::lab {

/// A metric that differs: "loss", or "health.model.norm.weight.updates_lost".
struct MetricDifference {
  std::string metric;
  nlohmann::json a, b;
};

struct MetricsDifferences {
  std::int64_t compared = 0;                    // steps in both files
  std::int64_t different = 0;                   // of these
  std::optional<std::int64_t> last_equal;       // the last compared step before the first that differs
  std::optional<std::int64_t> first_different;  // a step
  std::vector<MetricDifference> first;          // its differences
  std::optional<std::int64_t> last_a, last_b;   // the last step in each file
  /// True if no compared step differs and both files end with the same step.
  bool equal() const { return different == 0 && last_a == last_b; }
};

/// Compares the lines of equal steps. Metrics that only one file has are not compared, nor are those that
/// depend on the clock or the machine. A step's validation line counts as part of the step. A truncated last
/// line is ignored. Throws FileError if a file cannot be read, another line is not a metrics line, or steps
/// do not increase.
MetricsDifferences compare_metrics(const std::filesystem::path& a, const std::filesystem::path& b);

}  // namespace mantissa::lab
