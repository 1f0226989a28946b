// The bytes of a file in parts, with the number of their line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "mantissa/text/rows/byte_reader.h"

namespace mantissa::text {

class BufferedBytes {
 public:
  /// Throws FileError as ByteReader does.
  explicit BufferedBytes(const std::string& path) : input_(path) {}

  /// Returns bytes that follow, at most 1 MiB; none only at the end of the file. Valid until the next call.
  std::string_view rest();
  /// Consumes the first `count` bytes of rest().
  void take(std::size_t count);
  /// Returns the next byte, from 0 to 255, or -1 at the end of the file.
  int peek();
  /// Returns the next byte as peek() does, and consumes it.
  int get();

  /// Returns the number of the line of the next byte, from 1.
  std::int64_t line() const { return line_; }
  const ByteReader& input() const { return input_; }

 private:
  ByteReader input_;
  std::string chunk_;
  std::size_t at_ = 0;
  std::int64_t line_ = 1;
};

}  // namespace mantissa::text
