// Counts with their noun, for messages.
#pragma once

#include <fmt/format.h>

#include <concepts>
#include <string>
#include <string_view>

namespace mantissa {

/// Returns "1 step", "2 steps".
std::string counted(std::integral auto count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace mantissa
