#include "mantissa/text/rows/buffered_bytes.h"

#include <algorithm>

namespace mantissa::text {

std::string_view BufferedBytes::rest() {
  constexpr std::size_t kPart = std::size_t{1} << 20;
  if (at_ == chunk_.size()) {
    chunk_.resize(kPart);
    chunk_.resize(input_.read(chunk_.data(), kPart));
    at_ = 0;
  }
  return std::string_view(chunk_).substr(at_);
}

void BufferedBytes::take(std::size_t count) {
  const auto begin = chunk_.begin() + static_cast<std::ptrdiff_t>(at_);
  line_ += std::count(begin, begin + static_cast<std::ptrdiff_t>(count), '\n');
  at_ += count;
}

int BufferedBytes::peek() {
  if (at_ == chunk_.size() && rest().empty()) return -1;
  return static_cast<unsigned char>(chunk_[at_]);
}

int BufferedBytes::get() {
  const int byte = peek();
  if (byte >= 0) ++at_;
  if (byte == '\n') ++line_;
  return byte;
}

}  // namespace mantissa::text
