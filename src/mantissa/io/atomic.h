// Files and folders that appear whole or not at all: written beside, fsynced, renamed, the folder above
// fsynced.
//
// The name beside is the final one with ".partial" behind it. A crash leaves it there; nothing reads it, and
// the next writing of the same name replaces it. So there is one writer of a name at a time: a run directory
// is locked (io/lock.h).
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "mantissa/io/file.h"

namespace mantissa::io {

inline constexpr std::string_view kPartial = ".partial";

/// A file being written. Unless commit() returns, the file at `path` stays as it was.
class AtomicFile {
 public:
  /// Throws FileError where the folder of `path` is missing or not writable.
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Throws ResourceError where the disk is full.
  void write(std::span<const std::byte> bytes);
  /// As File's, for files that are written in any order.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void reserve(std::uint64_t bytes);
  void commit();

 private:
  std::filesystem::path path_, beside_;
  std::optional<File> file_;
};

/// Puts `bytes` at `path`. Throws as AtomicFile does; the old file is then untouched.
void write_file_atomic(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file_atomic(const std::filesystem::path& path, std::string_view text);

/// A folder being written. Unless commit() returns, what was at `path` stays as it was.
class AtomicDirectory {
 public:
  /// Makes the folders above `path` where they are missing. Throws FileError or ResourceError where it
  /// cannot.
  explicit AtomicDirectory(const std::filesystem::path& path);
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  /// Where to write the files in the meantime.
  const std::filesystem::path& beside() const { return beside_; }
  /// Fsyncs every file and renames. A folder that was at `path` is replaced: in one step where the file
  /// system can exchange two names; elsewhere it is called "<path>.replaced" for a moment.
  void commit();

 private:
  std::filesystem::path path_, beside_;
  bool committed_ = false;
};

}  // namespace mantissa::io
