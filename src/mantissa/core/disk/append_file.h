// A file that grows by whole records. Each record is written immediately, so that a run can be followed and a
// crash loses nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace mantissa::disk {

class AppendFile {
 public:
  enum class Open { append, must_be_new };
  /// A file that has other names, as in a copy by `cp -al`, is first replaced by one of its own. Throws
  /// FileError if `path` cannot be opened, is a link or not a regular file, or exists but must be new.
  explicit AppendFile(const std::filesystem::path& path, Open how = Open::append);
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Throws ResourceError if the disk is full.
  void write(std::string_view record);
  /// Cuts the file to its first `bytes` bytes.
  void truncate(std::uint64_t bytes);
  /// Returns when all records are on the disk. Throws ResourceError if they cannot be written.
  void sync();
  const std::filesystem::path& path() const { return path_; }

 private:
  bool open(int exclusive);

  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace mantissa::disk
