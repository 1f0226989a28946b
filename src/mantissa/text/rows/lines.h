// The lines of a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "mantissa/text/rows/byte_reader.h"

namespace mantissa::text {

/// Unlike std::getline, rejects a line that would exhaust memory, and does not mistake a read error for the
/// end of the file.
class Lines {
 public:
  /// Throws FileError as ByteReader does.
  explicit Lines(const std::string& path) : input_(path) {}

  /// Reads the next line without its terminator. Returns false at the end of the file. Throws FileError for a
  /// line of more than 256 MiB.
  bool next(std::string& line);
  /// Returns the number of the last line, from 1.
  std::int64_t number() const { return number_; }
  /// Returns true if the last line ended by its terminator, not by the end of the file.
  bool ended() const { return ended_; }
  const ByteReader& input() const { return input_; }

 private:
  bool refill();

  ByteReader input_;
  std::string chunk_;
  std::size_t at_ = 0;
  std::int64_t number_ = 0;
  bool ended_ = true;
};

}  // namespace mantissa::text
