// An owned file descriptor, with system errors reported as messages.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "mantissa/core/base/error.h"

namespace mantissa::disk {

/// An open regular file. Read errors throw FileError. Write errors throw ResourceError if space or quota is
/// exhausted.
class File {
 public:
  /// Throws FileError if `path` is missing, unreadable, or not a regular file.
  static File open_to_read(const std::filesystem::path& path);
  /// Opens a file that another process has made, to write parts of it. Throws FileError if `path` is missing
  /// or not a regular file.
  static File open_to_complete(const std::filesystem::path& path);
  /// Opens a device, a pipe, or a link to a descriptor, for writing; waits some seconds for the reader of a
  /// named pipe. Throws FileError if that fails.
  static File open_device(const std::filesystem::path& path);
  /// Takes an open descriptor of `path`.
  File(int descriptor, std::filesystem::path path) : descriptor_(descriptor), path_(std::move(path)) {}
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
  /// Throws ResourceError if it is too little, and takes none of it then.
  void reserve(std::uint64_t bytes);
  /// Appends all of `bytes`.
  void write(std::span<const std::byte> bytes);
  /// Returns when the contents are on the disk.
  void sync() const;
  /// Closes the file and reports deferred write errors.
  void close();
  const std::filesystem::path& path() const { return path_; }
  /// For system calls that this class does not wrap.
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
  std::filesystem::path path_;
};

/// How often a system call is repeated that a signal interrupted. A file system that interrupts every call is
/// an error then, and not a hang.
constexpr int kInterruptions = 10'000;

/// Repeats a system call that returns a negative number and sets errno while signals interrupt it.
template <class Call>
auto uninterrupted(const Call& call) {
  auto result = call();
  for (int i = 0; result < 0 && errno == EINTR && i < kInterruptions; ++i) result = call();
  return result;
}

/// Makes renames and removals in `directory` durable. Does nothing on file systems without support.
void sync_directory(const std::filesystem::path& directory);
/// Does so for the folder of `path`, which is new. Throws ResourceError, which says so.
void sync_name(const std::filesystem::path& path);

/// Removes a file or a link, if the name is there. Throws FileError.
void remove_file(const std::filesystem::path& path);

/// Creates `path` and its missing parents, durably. Throws FileError if it cannot be a directory,
/// ResourceError if the disk is full.
void make_directories(const std::filesystem::path& path);

/// Returns the contents of a small file. Throws FileError if it is larger than `limit` bytes.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t limit);

/// The system refuses to read a file, which may be intact.
class ReadError : public FileError {
 public:
  using FileError::FileError;
};

/// Throws the exception for errno `error` of a read of `path`: ResourceError if memory or descriptors are
/// exhausted, else ReadError.
[[noreturn]] void throw_read_error(const std::filesystem::path& path, int error);

/// Throws the exception for errno `error` of a write to `path`. Its message has the final names.
[[noreturn]] void throw_write_error(const std::filesystem::path& path, int error);

/// Throws the exception for errno `error` of the removal of `path`: FileError for what the user can mend,
/// else ResourceError.
[[noreturn]] void throw_remove_error(const std::filesystem::path& path, int error);

}  // namespace mantissa::disk
