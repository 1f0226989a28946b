#include "mantissa/text/rows/packing.h"

#include <algorithm>

#include "mantissa/core/base/error_text.h"

namespace mantissa::text {

std::vector<std::vector<std::int64_t>> pack(std::span<const std::int64_t> lengths, std::int64_t capacity,
                                            std::int64_t open_rows) {
  std::vector<std::vector<std::int64_t>> rows;
  std::vector<std::int64_t> room;  // of each row
  std::size_t first_open = 0;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::int64_t length = lengths[i];
    if (length < 2 || length > capacity) {
      throw ConfigError("document {} has {} ids; a row has room for 2 to {}", i, length, capacity);
    }
    auto place = std::find_if(room.begin() + static_cast<std::ptrdiff_t>(first_open), room.end(),
                              [&](std::int64_t left) { return left >= length; });
    if (place == room.end()) {
      rows.emplace_back();
      room.push_back(capacity);
      place = room.end() - 1;
      const auto open = static_cast<std::size_t>(std::max<std::int64_t>(1, open_rows));
      first_open = std::max(first_open, room.size() - std::min(room.size(), open));
    }
    *place -= length;
    rows[static_cast<std::size_t>(place - room.begin())].push_back(static_cast<std::int64_t>(i));
    while (first_open < room.size() && room[first_open] < 2) ++first_open;  // full
  }
  return rows;
}

}  // namespace mantissa::text
