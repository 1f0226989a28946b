#include "mantissa/core/base/quantities.h"

#include <fmt/format.h>

#include <cmath>

namespace mantissa {

std::string human_bytes(double bytes) {
  if (bytes < 1e6) return fmt::format("{:.0f} KB", bytes / 1e3);
  if (bytes < 1e9) return fmt::format("{:.1f} MB", bytes / 1e6);
  return fmt::format("{:.2f} GB", bytes / 1e9);
}

std::string human_seconds(double seconds) {
  if (seconds < 0.1) return fmt::format("{:.1f} ms", seconds * 1e3);
  if (seconds < 90) return fmt::format("{:.1f} s", seconds);
  if (seconds < 5400) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string percent_text(double share) {
  if (share > 0 && share < 0.0005) return fmt::format("{:.1g} %", 100 * share);
  // A share below 1 never reads as 100 %.
  if (share >= 0.9995 && share < 1) return fmt::format("{:.2f} %", std::floor(1e4 * share) / 100);
  const bool whole = share == 0 || share >= 0.9995 || (share >= 0.0995 && share <= 0.99);
  return fmt::format("{:.{}f} %", 100 * share, whole ? 0 : 1);
}

std::string parameters_text(double count) {
  return count < 1e6   ? fmt::format("{:.0f}K", count / 1e3)
         : count < 1e9 ? fmt::format("{:.1f}M", count / 1e6)
                       : fmt::format("{:.2f}B", count / 1e9);
}

}  // namespace mantissa
