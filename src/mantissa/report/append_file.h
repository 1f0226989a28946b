// A file that grows by whole records. Each record is written immediately, so that a run can be followed and a
// crash loses nothing.
#pragma once

#include <filesystem>
#include <string_view>

namespace mantissa::report {

class AppendFile {
 public:
  enum class Open { append, must_be_new };
  /// Throws FileError if `path` cannot be opened, or exists but must be new. Messages have `name` instead if
  /// it is given.
  explicit AppendFile(const std::filesystem::path& path, Open how = Open::append,
                      const std::filesystem::path& name = {});
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  /// Throws ResourceError if the disk is full.
  void write(std::string_view record);
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
};

}  // namespace mantissa::report
