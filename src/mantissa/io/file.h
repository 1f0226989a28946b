// A file descriptor that is closed when it goes, and the errors of the system turned into sentences.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace mantissa::io {

/// An open regular file. Reading faults are FileErrors; writing faults are ResourceErrors where space or
/// quota is missing.
class File {
 public:
  /// Throws FileError where `path` is missing, unreadable, or not a regular file.
  static File open_to_read(const std::filesystem::path& path);
  /// Opens for writing, created or emptied. Throws FileError where the folder is missing or not writable.
  static File create(const std::filesystem::path& path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::uint64_t size() const;
  /// Fills `out` from `offset`. Throws FileError where the file ends before.
  void read_at(std::uint64_t offset, std::span<std::byte> out) const;
  /// Puts `bytes` at `offset`; several threads may at once.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Makes the file `bytes` long and takes the room on the disk now, where the file system can.
  void reserve(std::uint64_t bytes);
  /// Appends all of `bytes`.
  void write(std::span<const std::byte> bytes);
  /// Returns when the contents are on the disk.
  void sync();
  /// Closes and reports what the system held back until now.
  void close();
  const std::filesystem::path& path() const { return path_; }
  /// For calls of the system that this class does not have.
  int descriptor() const { return descriptor_; }

 private:
  File(int descriptor, std::filesystem::path path) : descriptor_(descriptor), path_(std::move(path)) {}
  int descriptor_ = -1;
  std::filesystem::path path_;
};

/// Makes renames and removals in `directory` last. Nothing happens on file systems that cannot.
void sync_directory(const std::filesystem::path& directory);

/// Makes `path` and the directories above it that are missing. Throws FileError where it cannot be a
/// directory, ResourceError where the disk is full.
void make_directories(const std::filesystem::path& path);

/// The whole of a small file. Throws FileError where it is larger than `limit` bytes.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t limit);

/// Throws what `error` (an errno) means for the writing of `path`.
[[noreturn]] void throw_write_error(const std::filesystem::path& path, int error);

/// `text` in double quotes, fit to stand in a message: control characters as '?', the middle of a long one
/// left out.
std::string in_quotes(std::string_view text);

}  // namespace mantissa::io
