#include "mantissa/text/rows/lines.h"

#include <string_view>

#include "mantissa/core/base/error_text.h"

namespace mantissa::text {

bool Lines::next(std::string& line) {
  line.clear();
  number_ = bytes_.line();
  while (true) {
    const std::string_view rest = bytes_.rest();
    if (rest.empty()) {
      ended_ = false;
      return !line.empty();
    }
    const std::size_t end = rest.find('\n');
    line.append(rest.substr(0, end));
    bytes_.take(end == std::string_view::npos ? rest.size() : end + 1);
    if (line.size() > kMostRowBytes) {
      throw FileError(
          "{}:{}: the line has more than {} MiB; every line must be one JSON object with one document",
          input().path(), number_, kMostRowBytes >> 20U);
    }
    if (end != std::string_view::npos) return true;
  }
}

}  // namespace mantissa::text
