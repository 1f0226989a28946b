// The median, for measurements of time.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

namespace mantissa::lab {

/// Returns the median (of an even number, the upper one), or null for no values.
inline std::optional<double> median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace mantissa::lab
