// The place of a row in a file, for messages.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace mantissa::text {

struct FilePlace {
  std::int64_t line = 0;  // at which the row begins, from 1
  std::int64_t row = 0;   // from 1, if rows are not lines; else 0

  /// Returns the number of the row in its file: its own, or that of its line.
  std::int64_t number() const { return row > 0 ? row : line; }
  /// Returns "FILE:LINE", or "FILE:LINE (row ROW)".
  std::string in(const std::string& path) const {
    return row > 0 ? fmt::format("{}:{} (row {})", path, line, row) : fmt::format("{}:{}", path, line);
  }
};

}  // namespace mantissa::text
