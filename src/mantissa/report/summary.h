// summary.json: the result of a finished run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace mantissa::report {

struct RunSummary {
  std::int64_t steps = 0;
  double final_loss = 0;
  std::optional<double> validation_loss{};
  std::int64_t tokens = 0;
  double seconds = 0;
  std::int64_t predicted_peak_bytes = 0, measured_peak_bytes = 0;
  std::int64_t skipped = 0;
  std::string policy;
  std::string weights_xxh64;  // 16 hexadecimal digits
};

/// Returns the keys in the order above. Null: no validation, or a non-finite value.
std::string summary_json(const RunSummary& summary);

/// Replaces the file at `path` atomically. Throws FileError or ResourceError if that fails.
void write_summary(const std::filesystem::path& path, const RunSummary& summary);

}  // namespace mantissa::report
