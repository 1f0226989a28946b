// The elements of a JSON array, one at a time: the array as a whole is never in memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "mantissa/text/rows/buffered_bytes.h"

namespace mantissa::text {

/// The texts of the objects in an array that is a whole file. Finds where each object ends, and checks what
/// is between them; the texts themselves need not be JSON.
class JsonArray {
 public:
  /// `bytes` begin with white space and "[", and must outlive the array.
  explicit JsonArray(BufferedBytes& bytes) : bytes_(bytes) {}

  /// Reads the text of the next object. Returns false at the end of the array. Throws FileError with the line
  /// and the row if the array does not end, holds anything but objects or one of more than 256 MiB, and if
  /// anything follows the array.
  bool next(std::string& text);
  /// Returns the line at which the last object begins, and its number, both from 1.
  std::int64_t line() const { return line_; }
  std::int64_t row() const { return row_; }

 private:
  /// Returns the next byte after white space, or -1.
  int after_space();
  /// Ends the array: only white space follows.
  void end();
  void read_object(std::string& text);
  [[noreturn]] void refuse(std::string_view why) const;

  BufferedBytes& bytes_;
  std::int64_t line_ = 0, row_ = 0;
  bool begun_ = false, ended_ = false;
};

}  // namespace mantissa::text
