#include "mantissa/text/rows/lines.h"

#include "mantissa/core/base/error_text.h"

namespace mantissa::text {

bool Lines::next(std::string& line) {
  constexpr std::size_t kLongest = std::size_t{1} << 28;  // each JSON line is parsed as a whole
  line.clear();
  ++number_;
  while (true) {
    if (at_ == chunk_.size() && !refill()) {
      ended_ = false;
      return !line.empty();
    }
    const std::size_t end = chunk_.find('\n', at_);
    line.append(chunk_, at_, end == std::string::npos ? end : end - at_);
    at_ = end == std::string::npos ? chunk_.size() : end + 1;
    if (line.size() > kLongest) {
      throw FileError(
          "{}:{}: the line has more than {} MiB; every line must be one JSON object with one document",
          input_.path(), number_, kLongest >> 20);
    }
    if (end != std::string::npos) return true;
  }
}

bool Lines::refill() {
  constexpr std::size_t kPart = std::size_t{1} << 20;
  chunk_.resize(kPart);
  chunk_.resize(input_.read(chunk_.data(), kPart));
  at_ = 0;
  return !chunk_.empty();
}

}  // namespace mantissa::text
