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

/// The same with a verb: "1 value is", "2 values are".
std::string counted(std::integral auto count, std::string_view noun, std::string_view one,
                    std::string_view several) {
  return fmt::format("{} {}", counted(count, noun), count == 1 ? one : several);
}

}  // namespace mantissa
