// A text file, read line by line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "mantissa/core/disk/file.h"

namespace mantissa::disk {

class LineReader {
 public:
  /// Throws FileError if `path` is missing, unreadable, or not a regular file.
  explicit LineReader(const std::filesystem::path& path);

  /// Reads the next line, without its end. Returns false at the end of the file. Throws FileError if the file
  /// cannot be read or the line is longer than 256 MiB.
  bool next(std::string& line);
  /// Returns true if the last line had an end: a crash may have cut it otherwise.
  bool is_complete() const { return complete_; }
  /// Returns the number of the last line, from 1.
  std::int64_t number() const { return number_; }
  const std::filesystem::path& path() const { return file_.path(); }

 private:
  bool refill();

  File file_;
  std::uint64_t size_ = 0, offset_ = 0;  // of the file, and of what was read of it
  std::string buffer_;
  std::size_t at_ = 0;  // in the buffer
  std::int64_t number_ = 0;
  bool complete_ = true;
};

}  // namespace mantissa::disk
