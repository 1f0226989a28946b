// Lists of steps, as in run.skip_batches.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace mantissa::config {

/// Steps first … last.
struct StepRange {
  std::int64_t first = 0, last = 0;
  friend bool operator==(const StepRange&, const StepRange&) = default;
};

/// Parses "7,9-12". Throws ConfigError with the part that is not a step from 1, or a range in ascending
/// order.
std::vector<StepRange> parse_steps(std::string_view text);

/// Returns true if `step` is in a range.
bool has_step(const std::vector<StepRange>& ranges, std::int64_t step);

}  // namespace mantissa::config
