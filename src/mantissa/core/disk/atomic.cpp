#include "mantissa/core/disk/atomic.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <memory>
#include <ranges>
#include <set>
#include <system_error>

#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/disk/output.h"
#include "mantissa/core/disk/owned.h"
#include "mantissa/core/disk/unfinished.h"

namespace mantissa::disk {
namespace {

namespace fs = std::filesystem;

// On file systems that cannot exchange two names.
fs::path replaced_name(const fs::path& path) {
  return with_suffix(path, kReplaced);
}

[[noreturn]] void throw_in_the_way(const fs::path& path, const fs::path& name) {
  throw FileError(
      fmt::format("{}: is in the way, and this program did not write it; move it away, or choose "
                  "another name for {}",
                  path.string(), name.string()));
}

// Removes a trailing slash, which would put the suffix inside the directory.
fs::path without_slash(const fs::path& path) {
  return path.has_filename() ? path : path.parent_path();
}

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

[[noreturn]] void throw_exists(const fs::path& path) {
  throw FileError(fmt::format(
      "{}: exists already: another process has written it, or it is a mount point; choose another name, "
      "or replace a result with --overwrite",
      path.string()));
}

void rename_or_throw(const fs::path& from, const fs::path& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw_write_error(to, errno);
}

/// Renames unless `to` exists. On file systems that cannot do so in one step, looks first.
void rename_to_new(const fs::path& from, const fs::path& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  if (errno == EEXIST) throw_exists(to);
  if (errno != EINVAL && errno != ENOSYS) throw_write_error(to, errno);
  if (has_name(to)) throw_exists(to);
  rename_or_throw(from, to);
}

bool is_empty_file(const fs::path& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && status.st_size == 0;
}

}  // namespace

AtomicFile::AtomicFile(const Target& target)
    : path_(target.links == Links::follow ? followed(target.path) : target.path), existing_(target.existing) {
  // A link that is still there has no path behind it, such as /dev/stdout.
  const bool direct = target.links == Links::follow && (is_link(path_) || kind_of(path_) == Kind::other);
  if (direct) {
    how_ = How::direct;
    beside_ = path_;
    file_ = File::open_device(path_);
    return;
  }
  if (is_unfinished_directory(folder_of(path_))) how_ = How::in_place;
  beside_ = how_ == How::in_place ? path_ : unfinished(path_);
  {
    const Undivided whole;
    file_ = File(create_unfinished_file(beside_), beside_);
    if (how_ == How::beside)
      ended_ = RemovedAtSuddenEnd(beside_, RemovedAtSuddenEnd::What::file, file_->descriptor());
  }
  try {
    if (how_ == How::beside && existing_ == Existing::keep && has_name(path_) && !is_empty_file(path_))
      throw_exists(path_);
  } catch (...) {
    ::unlink(beside_.c_str());
    throw;
  }
}

AtomicFile::~AtomicFile() {
  // The original error matters more than one of unlink().
  if (file_ && how_ != How::direct) ::unlink(beside_.c_str());
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
  if (how_ != How::in_place) file_->sync();
  if (how_ == How::beside) {
    const Undivided whole;
    if (existing_ == Existing::keep && !is_empty_file(path_)) {
      rename_to_new(beside_, path_);
    } else {
      rename_or_throw(beside_, path_);
    }
    appeared_ = true;
    ended_.keep();
    finish(file_->descriptor(), path_);
  }
  File written = std::move(*file_);
  file_.reset();
  written.close();
  if (how_ == How::beside) sync_name(path_);
}

void write_file_atomic(const Target& target, std::span<const std::byte> bytes) {
  AtomicFile file(target);
  file.write(bytes);
  file.commit();
}

void write_file_atomic(const Target& target, std::string_view text) {
  write_file_atomic(target, std::as_bytes(std::span(text)));
}

NewDirectories::NewDirectories(const fs::path& path) {
  for (fs::path p = followed(path); !p.empty() && !has_name(p); p = p.parent_path()) created_.push_back(p);
  ended_.reserve(created_.size());
  try {
    const Undivided whole;
    if (!path.empty()) make_directories(path);
    for (const fs::path& p : created_ | std::views::reverse)
      ended_.emplace_back(p, RemovedAtSuddenEnd::What::empty_directory);
  } catch (...) {
    remove();
    throw;
  }
}

NewDirectories::~NewDirectories() {
  remove();
}

void NewDirectories::keep() {
  created_.clear();
  ended_.clear();
}

void NewDirectories::remove() const {
  for (const fs::path& directory : created_) ::rmdir(directory.c_str());  // fails for one that is not empty
}

namespace {

/// Returns true if `directory` is absent, or holds nothing but an earlier result of the same names.
bool is_whole(const fs::path& directory, std::string_view kind, const std::set<std::string>& names,
              Existing existing) {
  if (!has_name(directory)) return true;
  if (existing == Existing::keep) return false;
  const std::set<std::string> owned = owned_names(directory);
  if (owned.empty() || !std::ranges::includes(names, owned)) return false;
  if (::access(folder_of(directory).c_str(), W_OK) != 0) return false;
  try {
    check_replaceable(directory, kind);
  } catch (const ReadError&) {
    throw;
  } catch (const FileError&) {
    return false;
  }
  return true;
}

/// Throws FileError if one of `names` in `directory` is not that of an earlier result of this kind.
void check_names(const fs::path& directory, std::string_view kind, const std::set<std::string>& names) {
  const std::set<std::string> owned = owned_names(directory);
  check_kind(directory, kind, names);
  for (const std::string& name : names) {
    if (!has_name(directory / name) || owned.contains(name)) continue;
    throw FileError(
        fmt::format("{}: is in the way, and this program did not write it; move it away, or choose "
                    "another directory",
                    (directory / name).string()));
  }
}

/// Writes the list `after` in place of `before`, and makes the files appear. Puts the list back if none does.
void appear_together(const fs::path& directory, const OwnedKinds& before, const OwnedKinds& after,
                     std::span<const std::unique_ptr<AtomicFile>> files) {
  const fs::path list = directory / kOwnedList;
  const bool listed = has_name(list);
  const Undivided whole;
  try {
    write_file_atomic(list, owned_list(after));
    for (const std::unique_ptr<AtomicFile>& file : files) file->commit();
  } catch (...) {
    if (std::ranges::none_of(files, [](const auto& file) { return file->appeared(); })) {
      try {
        listed ? write_file_atomic(list, owned_list(before)) : remove_file(list);
      } catch (const std::exception&) {  // the first error matters more
      }
    }
    throw;
  }
}

}  // namespace

void check_files_atomic(const fs::path& given, std::string_view kind,
                        std::initializer_list<std::string_view> names) {
  const fs::path directory = followed(given);
  check_output({given, Shape::directory, true});
  if (disk::exists(directory)) check_names(directory, kind, {names.begin(), names.end()});
}

void write_files_atomic(const fs::path& given, std::string_view kind, std::initializer_list<NamedText> files,
                        Existing existing) {
  const fs::path directory = followed(given);
  std::set<std::string> names;
  for (const NamedText& f : files) names.emplace(f.name);
  if (is_whole(directory, kind, names, existing)) {
    AtomicDirectory whole(Target(directory, Links::replace, existing), kind);
    for (const NamedText& f : files) write_file_atomic(whole.beside() / f.name, f.text);
    return whole.commit();
  }
  NewDirectories created(directory);
  check_names(directory, kind, names);
  const OwnedKinds before = owned_kinds(directory);
  // A part of a result is what an interrupted command left: the names are those of its list.
  if (!std::ranges::all_of(names, [&](const std::string& name) { return has_name(directory / name); }))
    existing = Existing::replace;
  std::vector<std::unique_ptr<AtomicFile>> written;
  for (const NamedText& f : files) {
    written.push_back(std::make_unique<AtomicFile>(Target(directory / f.name, Links::replace, existing)));
    written.back()->write(std::as_bytes(std::span(f.text)));
  }
  OwnedKinds owned = before;
  add_owned(owned, names, kind);
  appear_together(directory, before, owned, written);
  created.keep();
}

namespace {

/// Removes `names` and the directory, which nobody needs any more. Some faults pass: tries twice.
void remove_replaced(const fs::path& directory, std::span<const std::string> names) {
  try {
    return remove_names(directory, names);
  } catch (const Error&) {  // NOLINT(bugprone-empty-catch)
  }
  remove_names(directory, names);
}

}  // namespace

void remove_whole(const fs::path& directory, std::span<const std::string_view> known) {
  if (is_link(directory)) return remove_owned(directory, known);
  if (!disk::exists(directory)) return;
  const std::vector<std::string> names = removable_names(directory, known);
  mark_directory(directory);
  const fs::path gone = unfinished(without_slash(directory));
  rename_to_new(directory, gone);
  remove_replaced(gone, names);
}

AtomicDirectory::AtomicDirectory(const Target& target, std::string_view kind,
                                 std::span<const std::string_view> known)
    : path_(without_slash(target.links == Links::follow ? followed(target.path) : target.path)),
      beside_(unfinished(path_)),
      existing_(target.existing),
      kind_(kind),
      known_(known.begin(), known.end()),
      parents_(path_.parent_path()) {
  if (disk::is_directory(path_) && is_same(path_, ".")) {
    throw FileError(
        fmt::format("{}: is the current directory; name a new directory, or an existing one by its own name "
                    "from outside",
                    target.path.string()));
  }
  {
    const Undivided whole;
    descriptor_ = create_unfinished_directory(beside_, known_);
    ended_ = RemovedAtSuddenEnd(beside_, RemovedAtSuddenEnd::What::directory, descriptor_);
  }
  try {
    finish_replacement(path_, known_);
    if (existing_ == Existing::keep && has_name(path_) &&
        !(disk::is_directory(path_) && entries(path_).empty()))
      throw_exists(path_);
    check_replaceable(path_, kind_, known_);
  } catch (...) {
    ::rmdir(beside_.c_str());
    ended_.keep();
    ::close(descriptor_);
    throw;
  }
}

AtomicDirectory::~AtomicDirectory() {
  if (!committed_) {
    try {
      for (const fs::path& file : entries(beside_)) ::unlink(file.c_str());
    } catch (const std::exception&) {  // the original error matters more
      ended_.remove();                 // which memory may have caused
    }
    ::rmdir(beside_.c_str());
  }
  ended_.keep();
  ::close(descriptor_);
}

void AtomicDirectory::commit() {
  std::set<std::string> names;
  for (const fs::path& file : entries(beside_)) names.insert(file.filename().string());
  if (known_.empty()) write_file_atomic(beside_ / kOwnedList, owned_list(names, kind_));
  // On Linux fsync also works through a descriptor that only reads.
  for (const fs::path& file : entries(beside_)) File::open_to_read(file).sync();
  sync_directory(beside_);
  const bool replaces = existing_ == Existing::replace && has_name(path_);
  if (replaces) check_replaceable(path_, kind_, known_);
  const std::vector<std::string> replaced =
      replaces ? removable_names(path_, known_) : std::vector<std::string>();
  std::exception_ptr stays;
  {
    const Undivided whole;
    if (replaces) {
      stays = replace(replaced);
    } else {
      if (disk::is_directory(path_)) ::rmdir(path_.c_str());  // an empty one
      rename_to_new(beside_, path_);
    }
    committed_ = true;
    ended_.keep();
    parents_.keep();
    finish_directory(descriptor_, path_);
  }
  sync_name(path_);
  if (stays) std::rethrow_exception(stays);
}

std::exception_ptr AtomicDirectory::remove_previous(const fs::path& previous,
                                                    std::span<const std::string> names) const {
  try {
    remove_replaced(previous, names);
    return nullptr;
  } catch (const Error& e) {
    return std::make_exception_ptr(
        ResourceError(fmt::format("{}: is the new result; the earlier one, {}, is still there. {}",
                                  path_.string(), previous.string(), e.what())));
  }
}

std::exception_ptr AtomicDirectory::replace(std::span<const std::string> names) {
  if (!is_link(path_)) mark_directory(path_);  // it is about to be unfinished
  if (::renameat2(AT_FDCWD, beside_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) == 0) {
    sync_name(path_);
    return remove_previous(beside_, names);
  }
  if (errno != EINVAL && errno != ENOSYS) throw_write_error(path_, errno);
  const fs::path replaced = replaced_name(path_);
  if (has_name(replaced)) throw_in_the_way(replaced, path_);
  rename_to_new(path_, replaced);
  rename_or_throw(beside_, path_);
  sync_name(path_);
  return remove_previous(replaced, names);
}

void finish_replacement(const fs::path& path, std::span<const std::string_view> known) {
  const fs::path replaced = replaced_name(path);
  if (is_link(replaced) || !has_mark(replaced)) return;  // somebody else's
  if (has_name(path)) return remove_owned(replaced, known);
  check_replaceable(replaced, "", known);
  rename_to_new(replaced, path);
  unmark_directory(path);
  sync_name(path);
}

}  // namespace mantissa::disk
