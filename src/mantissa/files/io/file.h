// An owned file descriptor, with system errors reported as messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace mantissa::io {

/// An open regular file. Read errors throw FileError. Write errors throw ResourceError if space or quota is
/// exhausted.
class File {
 public:
  /// Throws FileError if `path` is missing, unreadable, or not a regular file.
  static File open_to_read(const std::filesystem::path& path);
  /// Opens for writing; creates or truncates the file. Throws FileError if the folder is missing or not
  /// writable.
  static File create(const std::filesystem::path& path);
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  std::uint64_t size() const;
  /// Fills `out` from `offset`. Throws FileError if the file is too short.
  void read_at(std::uint64_t offset, std::span<std::byte> out) const;
  /// Writes `bytes` at `offset`. Safe to call from several threads.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Sets the file's length to `bytes` and allocates the disk space now if the file system supports it.
  void reserve(std::uint64_t bytes);
  /// Appends all of `bytes`.
  void write(std::span<const std::byte> bytes);
  /// Returns when the contents are on the disk.
  void sync();
  /// Closes the file and reports deferred write errors.
  void close();
  const std::filesystem::path& path() const { return path_; }
  /// For system calls that this class does not wrap.
  int descriptor() const { return descriptor_; }

 private:
  File(int descriptor, std::filesystem::path path) : descriptor_(descriptor), path_(std::move(path)) {}
  int descriptor_ = -1;
  std::filesystem::path path_;
};

/// Returns true if `path` exists. Throws FileError if the system cannot tell, for example for a folder that
/// may not be read: what cannot be read is not absent.
bool exists(const std::filesystem::path& path);

/// Makes renames and removals in `directory` durable. Does nothing on file systems without support.
void sync_directory(const std::filesystem::path& directory);

/// Creates `path` and its missing parents. Throws FileError if it cannot be a directory, ResourceError if the
/// disk is full.
void make_directories(const std::filesystem::path& path);

/// Returns the contents of a small file. Throws FileError if it is larger than `limit` bytes.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t limit);

/// Ends the temporary name of a file or folder that is not complete (atomic.h).
inline constexpr std::string_view kPartial = ".partial";

/// Throws the exception for errno `error` of a write to `path`. Its message has the final names.
[[noreturn]] void throw_write_error(const std::filesystem::path& path, int error);

/// Returns `text` in double quotes for a message: control characters become '?', and the middle of a long
/// text is cut.
std::string in_quotes(std::string_view text);

}  // namespace mantissa::io
