// The bytes of a file in order, decompressed if its name ends with .gz or .zst.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace mantissa::text {

/// Returns `path` without .gz or .zst at its end.
std::string_view without_compression(std::string_view path);

/// Reads a file as a stream; of compressed files only a window is in memory. Errors are FileError with the
/// file and the position in it.
class ByteReader {
 public:
  /// Throws if the file cannot be read, or is a Parquet file.
  explicit ByteReader(const std::string& path);
  ~ByteReader();
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;

  /// Reads the next `count` bytes into `out`, fewer only at the end. Returns their number. Throws if the file
  /// ends early, is damaged, or shrinks while it is read.
  std::size_t read(char* out, std::size_t count);

  const std::string& path() const;
  /// Returns the size of the file, and how many of its bytes are read.
  std::uintmax_t file_bytes() const;
  std::uintmax_t consumed() const;
  bool compressed() const;

  class Decompressor;
  class RawFile;

 private:
  std::unique_ptr<RawFile> file_;
  std::unique_ptr<Decompressor> decompressor_;  // null: the file's own bytes
};

/// Returns all bytes of the file. Throws as ByteReader does.
std::string read_all_bytes(const std::string& path);

}  // namespace mantissa::text
