#include "mantissa/files/io/atomic.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <system_error>
#include <vector>

#include "mantissa/core/base/error.h"

namespace mantissa::io {
namespace {

namespace fs = std::filesystem;

fs::path with_suffix(fs::path path, std::string_view suffix) {
  path += suffix;
  return path;
}

/// Returns the file that `path` leads to through links, or `path` if there is none.
fs::path followed(const fs::path& path) {
  std::error_code error;
  const fs::path target = fs::is_symlink(path, error) ? fs::canonical(path, error) : path;
  return error ? path : target;
}

/// Returns the path to write before `path` is replaced: `path` itself for a device or a pipe. A link that
/// followed() left leads to no file, or through /proc to a descriptor without a name.
fs::path beside(const fs::path& path) {
  std::error_code error;
  const bool direct = fs::is_other(path, error) || fs::is_symlink(path, error);
  return direct ? path : with_suffix(path, kPartial);
}

// Removes a trailing slash, which would put the suffix inside the folder.
fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw_write_error(to, errno);
}

// On Linux fsync also works through a read-only descriptor. The caller has written and closed every file in
// the folder.
void sync_tree(const fs::path& directory) {
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(directory)) {
    if (entry.is_directory()) {
      sync_directory(entry.path());
    } else if (entry.is_regular_file()) {
      File::open_to_read(entry.path()).sync();
    }
  }
  sync_directory(directory);
}

}  // namespace

AtomicFile::AtomicFile(const fs::path& path)
    : path_(followed(path)), beside_(beside(path_)), file_(File::create(beside_)) {}

AtomicFile::~AtomicFile() {
  if (!file_) return;
  file_.reset();
  if (beside_ == path_) return;
  std::error_code ignored;  // the original error matters more
  fs::remove(beside_, ignored);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  file_->write(bytes);
}

void AtomicFile::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  file_->write_at(offset, bytes);
}

void AtomicFile::reserve(std::uint64_t bytes) {
  file_->reserve(bytes);
}

void AtomicFile::commit() {
  file_->sync();
  file_->close();
  if (beside_ != path_) rename_or_throw(beside_, path_);
  file_.reset();
  sync_directory(path_.parent_path());
}

void write_file_atomic(const fs::path& path, std::span<const std::byte> bytes) {
  AtomicFile file(path);
  file.write(bytes);
  file.commit();
}

void write_file_atomic(const fs::path& path, std::string_view text) {
  write_file_atomic(path, std::as_bytes(std::span(text)));
}

NewDirectories::NewDirectories(const fs::path& path) {
  std::error_code error;
  const auto is_missing = [&](const fs::path& p) { return !fs::exists(fs::symlink_status(p, error)); };
  for (fs::path p = without_slash(path); !p.empty() && is_missing(p); p = p.parent_path())
    created_.push_back(p);
  try {
    if (!path.empty()) make_directories(path);
  } catch (const Error&) {
    remove();
    throw;
  }
}

NewDirectories::~NewDirectories() {
  remove();
}

void NewDirectories::remove() const {
  std::error_code ignored;  // of a directory that is not empty, for example
  for (const fs::path& directory : created_) fs::remove(directory, ignored);
}

void write_files_atomic(const fs::path& directory, std::initializer_list<NamedText> files) {
  NewDirectories created(directory);
  std::vector<std::unique_ptr<AtomicFile>> written;
  for (const NamedText& f : files) {
    written.push_back(std::make_unique<AtomicFile>(directory / f.name));
    written.back()->write(std::as_bytes(std::span(f.text)));
  }
  for (const std::unique_ptr<AtomicFile>& file : written) file->commit();
  created.keep();
}

AtomicDirectory::AtomicDirectory(const fs::path& path)
    : path_(without_slash(path)), beside_(with_suffix(path_, kPartial)), parents_(path_.parent_path()) {
  std::error_code error;
  fs::remove_all(beside_, error);
  if (!error) fs::create_directory(beside_, error);
  if (error) throw_write_error(beside_, error.value());
}

AtomicDirectory::~AtomicDirectory() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(beside_, ignored);
}

void AtomicDirectory::commit() {
  sync_tree(beside_);
  const fs::path parent = path_.parent_path();
  std::error_code error;
  if (!fs::exists(fs::symlink_status(path_, error))) {
    rename_or_throw(beside_, path_);
  } else if (::renameat2(AT_FDCWD, beside_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) {
    sync_directory(parent);
    fs::remove_all(beside_, error);  // the previous folder
  } else {
    const fs::path replaced = with_suffix(path_, ".replaced");
    fs::remove_all(replaced, error);
    rename_or_throw(path_, replaced);
    rename_or_throw(beside_, path_);
    sync_directory(parent);
    fs::remove_all(replaced, error);
  }
  committed_ = true;
  parents_.keep();
  sync_directory(parent);
}

}  // namespace mantissa::io
