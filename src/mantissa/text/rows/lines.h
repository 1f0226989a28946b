// The lines of a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "mantissa/text/rows/buffered_bytes.h"

namespace mantissa::text {

/// The largest row of a file: it is parsed as a whole.
inline constexpr std::size_t kMostRowBytes = std::size_t{1} << 28;

/// Unlike std::getline, rejects a line that would exhaust memory, and does not mistake a read error for the
/// end of the file.
class Lines {
 public:
  /// Throws FileError as ByteReader does.
  explicit Lines(const std::string& path) : bytes_(path) {}

  /// Reads the next line without its terminator. Returns false at the end of the file. Throws FileError for a
  /// line of more than 256 MiB.
  bool next(std::string& line);
  /// Returns the number of the last line, from 1.
  std::int64_t number() const { return number_; }
  /// Returns true if the last line ended by its terminator, not by the end of the file.
  bool ended() const { return ended_; }
  /// Returns the bytes after the last line.
  BufferedBytes& bytes() { return bytes_; }
  const ByteReader& input() const { return bytes_.input(); }

 private:
  BufferedBytes bytes_;
  std::int64_t number_ = 0;
  bool ended_ = true;
};

}  // namespace mantissa::text
