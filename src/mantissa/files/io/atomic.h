// Files and folders that appear completely or not at all: written under a temporary name in the same folder,
// fsynced and renamed; then the parent folder is fsynced.
//
// A link to a file stays a link, to the new file. A device or a pipe is written directly: it has no old
// contents to keep.
//
// The temporary name is the final one plus ".partial". After a crash it remains; nothing reads it, and the
// next write of the same name replaces it. Each name may have only one writer at a time; files/io/lock.h
// locks a run directory for that reason.
#pragma once

#include <cstddef>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "mantissa/files/io/file.h"

namespace mantissa::io {

/// A file being written. Unless commit() returns, the file at `path` remains unchanged.
class AtomicFile {
 public:
  /// Throws FileError if the folder of `path` is missing or not writable.
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends `bytes`. Throws ResourceError if the disk is full.
  void write(std::span<const std::byte> bytes);
  /// Like File's functions, for files written in any order.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void reserve(std::uint64_t bytes);
  void commit();

 private:
  std::filesystem::path path_, beside_;
  std::optional<File> file_;
};

/// Replaces the file at `path` by `bytes`. Throws like AtomicFile and then leaves the old file unchanged.
void write_file_atomic(const std::filesystem::path& path, std::span<const std::byte> bytes);
void write_file_atomic(const std::filesystem::path& path, std::string_view text);

/// Creates a directory for a result. Directories that were missing are removed again unless keep() is called
/// or they contain something.
class NewDirectories {
 public:
  /// Throws like make_directories.
  explicit NewDirectories(const std::filesystem::path& path);
  ~NewDirectories();
  NewDirectories(const NewDirectories&) = delete;
  NewDirectories& operator=(const NewDirectories&) = delete;
  void keep() { created_.clear(); }

 private:
  void remove() const;

  std::vector<std::filesystem::path> created_;  // the innermost first
};

/// Replaces several files of one result in `directory`, which is created if it is missing. All are written
/// before the first one is replaced, so that a full disk leaves the old ones together, and nothing new.
struct NamedText {
  std::string_view name, text;
};
void write_files_atomic(const std::filesystem::path& directory, std::initializer_list<NamedText> files);

/// A folder being written. Unless commit() returns, the folder at `path` remains unchanged.
class AtomicDirectory {
 public:
  /// Creates missing parent folders of `path`, which are removed if commit() does not return. Throws
  /// FileError or ResourceError on failure.
  explicit AtomicDirectory(const std::filesystem::path& path);
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  /// Returns the temporary folder to write the files to.
  const std::filesystem::path& beside() const { return beside_; }
  /// Fsyncs every file and renames the folder. An existing folder at `path` is replaced, in one step if the
  /// file system can exchange two names; otherwise it is briefly named "<path>.replaced".
  void commit();

 private:
  std::filesystem::path path_, beside_;
  NewDirectories parents_;
  bool committed_ = false;
};

}  // namespace mantissa::io
