#include "mantissa/core/disk/lines.h"

#include <algorithm>
#include <span>

#include "mantissa/core/base/error_text.h"

namespace mantissa::disk {
namespace {

constexpr std::size_t kBuffer = std::size_t{1} << 16, kLongest = std::size_t{1} << 28;

}  // namespace

LineReader::LineReader(const std::filesystem::path& path)
    : file_(File::open_to_read(path)), size_(file_.size()) {}

bool LineReader::refill() {
  if (offset_ == size_) return false;
  buffer_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(kBuffer, size_ - offset_)));
  at_ = 0;
  file_.read_at(offset_, std::as_writable_bytes(std::span(buffer_)));
  offset_ += buffer_.size();
  return true;
}

bool LineReader::next(std::string& line) {
  line.clear();
  complete_ = false;
  while (at_ < buffer_.size() || refill()) {
    const std::size_t end = buffer_.find('\n', at_);
    complete_ = end != std::string::npos;
    line.append(buffer_, at_, complete_ ? end - at_ : std::string::npos);
    at_ = complete_ ? end + 1 : buffer_.size();
    if (complete_) break;
    if (line.size() > kLongest) {
      throw FileError("{}: line {} is longer than {} MiB; check that it is the right file", path().string(),
                      number_ + 1, kLongest >> 20);
    }
  }
  if (!complete_ && line.empty()) return false;
  ++number_;
  return true;
}

}  // namespace mantissa::disk
