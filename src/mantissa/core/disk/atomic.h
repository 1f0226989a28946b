// Files and directories that appear completely or not at all: written under an unfinished name in the same
// directory (core/disk/unfinished.h), fsynced and renamed; then the parent directory is fsynced.
//
// A name has one writer at a time: while one process writes it, another one gets an error.
#pragma once

#include <cstddef>
#include <exception>
#include <filesystem>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/sudden_end.h"

namespace mantissa::disk {

/// What to do about a link at the path. A path that the user gave may be a link, which stays and leads to the
/// new file or directory, also if it led nowhere. It may be a device or a pipe, which is written directly: it
/// has no old contents to keep. In a directory whose files the program names, a link would lead to somebody
/// else's file, and is replaced.
enum class Links { replace, follow };

/// What to do about an existing file or directory that is not empty.
enum class Existing { replace, keep };

/// Where a file goes.
struct Target {
  // NOLINTNEXTLINE(google-explicit-constructor): a path is a target
  Target(std::filesystem::path at, Links l = Links::replace, Existing e = Existing::replace)
      : path(std::move(at)), links(l), existing(e) {}

  std::filesystem::path path;
  Links links;
  Existing existing;
};

/// Returns the target of a path that the user gave for a result. `overwrite`: an existing file is replaced.
inline Target given(std::filesystem::path path, bool overwrite) {
  return {std::move(path), Links::follow, overwrite ? Existing::replace : Existing::keep};
}

/// A file being written. Unless commit() returns, the file at `path` remains unchanged. In an
/// unfinished directory it is written in place, since commit() of the directory makes it appear.
class AtomicFile {
 public:
  /// Throws FileError if the folder of `path` is missing or not writable, if another process is writing it,
  /// or if it exists and must be kept.
  explicit AtomicFile(const Target& target);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  /// Appends `bytes`. Throws ResourceError if the disk is full.
  void write(std::span<const std::byte> bytes);
  /// Like File's functions, for files written in any order.
  void write_at(std::uint64_t offset, std::span<const std::byte> bytes);
  void reserve(std::uint64_t bytes);
  void commit();
  /// True once the file has its name, also if commit() then throws.
  bool appeared() const { return appeared_; }

 private:
  enum class How { beside, in_place, direct };

  std::filesystem::path path_, beside_;
  Existing existing_;
  How how_ = How::beside;
  bool appeared_ = false;
  std::optional<File> file_;
  RemovedAtSuddenEnd ended_;
};

/// Replaces the file at `target` by `bytes`. Throws like AtomicFile and then leaves the old file unchanged.
void write_file_atomic(const Target& target, std::span<const std::byte> bytes);
void write_file_atomic(const Target& target, std::string_view text);

/// Creates a directory for a result; a link that leads nowhere leads to it. Directories that were missing are
/// removed again unless keep() is called or they contain something.
class NewDirectories {
 public:
  /// Throws like make_directories.
  explicit NewDirectories(const std::filesystem::path& path);
  ~NewDirectories();
  NewDirectories(const NewDirectories&) = delete;
  NewDirectories& operator=(const NewDirectories&) = delete;
  void keep();

 private:
  void remove() const;

  std::vector<std::filesystem::path> created_;  // the innermost first
  std::vector<RemovedAtSuddenEnd> ended_;
};

/// Writes several files of one result into `directory`. A new one, or one that holds an earlier result with
/// the same names and nothing else, appears as a whole. In another one all files are written before the first
/// one is replaced, so that a full disk leaves the old ones together, and nothing new. `directory` may be a
/// link, as a path that the user gave. Throws FileError if one of the names is there and no list names it as
/// the program's, or if a list names a result of another kind (core/disk/owned.h) that it would mix with.
struct NamedText {
  std::string_view name, text;
};
void write_files_atomic(const std::filesystem::path& directory, std::string_view kind,
                        std::initializer_list<NamedText> files, Existing existing = Existing::replace);

/// Throws FileError where write_files_atomic() would, for a command that has not yet done its work.
void check_files_atomic(const std::filesystem::path& directory, std::string_view kind,
                        std::initializer_list<std::string_view> names);

/// The end of the name of a directory that is being replaced.
inline constexpr std::string_view kReplaced = ".replaced";

/// Finishes the replacement of the directory at `path` that a killed process has left on a file system that
/// cannot exchange two names: the earlier directory comes back if no other has taken its place, and is
/// removed otherwise. Only the writer of `path` may call this. A "<path>.replaced" of somebody else stays.
void finish_replacement(const std::filesystem::path& path, std::span<const std::string_view> known = {});

/// Removes a directory for which check_replaceable() holds, so that a crash cannot leave a part of it under
/// its name.
void remove_whole(const std::filesystem::path& directory, std::span<const std::string_view> known = {});

/// A directory being written, without subdirectories. Unless commit() returns, the directory at `path`
/// remains unchanged.
class AtomicDirectory {
 public:
  /// Creates missing parents of the directory, which are removed if commit() does not return. An existing
  /// directory that is replaced holds nothing but what its list (core/disk/owned.h) names as of the kind
  /// `kind`, or `known`: throws FileError otherwise, or if another process is writing it. A directory whose
  /// names are all `known` gets no list. Throws ResourceError if the disk is full.
  AtomicDirectory(const Target& target, std::string_view kind, std::span<const std::string_view> known = {});
  ~AtomicDirectory();
  AtomicDirectory(const AtomicDirectory&) = delete;
  AtomicDirectory& operator=(const AtomicDirectory&) = delete;

  /// Returns the temporary directory to write the files to.
  const std::filesystem::path& beside() const { return beside_; }
  /// Fsyncs every file and renames the directory. An existing one is replaced, in one step if the file system
  /// can exchange two names; otherwise it is briefly named "<path>.replaced", from where finish_replacement()
  /// brings it back if the process is killed.
  void commit();

 private:
  /// Makes the directory appear in place of the one at path_, and does remove_previous().
  std::exception_ptr replace(std::span<const std::string> names);
  /// Removes that one, which holds `names`. Returns the error with which commit() ends if it stays, or null.
  std::exception_ptr remove_previous(const std::filesystem::path& previous,
                                     std::span<const std::string> names) const;

  std::filesystem::path path_, beside_;
  Existing existing_;
  std::string_view kind_;
  std::vector<std::string_view> known_;
  NewDirectories parents_;
  int descriptor_ = -1;
  RemovedAtSuddenEnd ended_;
  bool committed_ = false;
};

}  // namespace mantissa::disk
