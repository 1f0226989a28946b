#include "mantissa/core/disk/unfinished.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <set>
#include <string>

#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/disk/owned.h"

namespace mantissa::disk {
namespace {

bool is_marked(const struct stat& status) {
  return (S_ISREG(status.st_mode) || S_ISDIR(status.st_mode)) && (status.st_mode & kMark) != 0;
}

/// An open descriptor, closed at the end of the scope.
class Open {
 public:
  Open(const std::filesystem::path& path, int flags)
      : descriptor_(::open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)) {}
  ~Open() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

bool is_known(const std::filesystem::path& file, std::span<const std::string_view> known) {
  return std::ranges::find(known, file.filename().string()) != known.end();
}

/// Removes the files of an abandoned directory that bear the mark or are in its list or `known`, and then the
/// directory, if nothing else is in it.
void remove_directory(const std::filesystem::path& directory, std::span<const std::string_view> known) {
  std::set<std::string> listed;
  try {
    listed = owned_names(directory);
  } catch (const FileError& e) {  // a power loss may leave a list without its contents
    if (dynamic_cast<const ReadError*>(&e) != nullptr) throw;
  }
  for (const std::filesystem::path& file : entries(directory)) {
    struct stat status {};
    if (::lstat(file.c_str(), &status) != 0) throw_write_error(file, errno);
    const std::string name = file.filename().string();
    const bool is_ours = S_ISREG(status.st_mode) && (is_marked(status) || listed.contains(name) ||
                                                     name == kOwnedList || is_known(file, known));
    if (!is_ours) {
      throw FileError(fmt::format(
          "{}: is in an unfinished or earlier result, which is to be removed, and this program did not "
          "write it. Fix: move it away",
          file.string()));
    }
    if (name != kOwnedList) remove_file(file);
  }
  remove_file(directory / kOwnedList);
  if (::rmdir(directory.c_str()) != 0 && errno != ENOENT) throw_remove_error(directory, errno);
}

enum class Left { removed, in_use, foreign };

/// Removes what a killed process left under the name `path`.
Left remove_left(const std::filesystem::path& path, std::span<const std::string_view> known) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return Left::removed;
    throw_write_error(path, errno);
  }
  const bool is_ours =
      is_marked(status) ||
      (S_ISDIR(status.st_mode) && !known.empty() &&
       std::ranges::all_of(entries(path), [&](const auto& file) { return is_known(file, known); }));
  if (!is_ours) return Left::foreign;
  const Open open(path, O_RDONLY);
  if (open.descriptor() < 0 && errno == ENOENT) return Left::removed;
  if (open.descriptor() < 0) throw_write_error(path, errno);
  if (lock(open.descriptor(), path) == Locked::in_use) return Left::in_use;
  if (!is_still(path, open.descriptor())) return Left::removed;
  if (S_ISDIR(status.st_mode)) {
    remove_directory(path, known);
  } else {
    remove_file(path);
  }
  return Left::removed;
}

void remove_left_or_throw(const std::filesystem::path& path, std::span<const std::string_view> known) {
  switch (remove_left(path, known)) {
    case Left::removed:
      return;
    case Left::in_use:
      throw FileError(
          fmt::format("{}: another process is writing it; wait until that ends, or choose another "
                      "name",
                      final_name(path)));
    case Left::foreign:
      throw FileError(
          fmt::format("{}: is in the way, and this program did not write it; move it away, or choose "
                      "another name for {}",
                      path.string(), final_name(path)));
  }
}

/// Creates `path` with `make`, which returns a descriptor, or −1 with errno. `remove` removes what it made.
template <class Make, class Remove>
int create(const std::filesystem::path& path, std::span<const std::string_view> known, Make make,
           Remove remove) {
  for (int tries = 0;; ++tries) {
    const int descriptor = make();
    if (descriptor < 0 && tries < kInterruptions) {
      if (errno == EEXIST) {
        remove_left_or_throw(path, known);
        continue;
      }
      if (errno == EINTR) continue;
    }
    if (descriptor < 0) throw_write_error(path, errno);
    try {
      // Another process may have taken it for abandoned before the lock, and removed it.
      if (lock(descriptor, path) != Locked::in_use && is_still(path, descriptor)) return descriptor;
    } catch (...) {
      remove(path.c_str());
      ::close(descriptor);
      throw;
    }
    ::close(descriptor);
  }
}

}  // namespace

std::filesystem::path unfinished(const std::filesystem::path& path) {
  return with_suffix(path, kPartial);
}

std::filesystem::path with_suffix(const std::filesystem::path& path, std::string_view suffix) {
  constexpr std::size_t kLongest = 255;  // NAME_MAX
  std::string name = path.filename().string();
  if (name.size() + suffix.size() > kLongest) {
    std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a: http://www.isthe.com/chongo/tech/comp/fnv/
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    name = fmt::format("{}~{:016x}", name.substr(0, kLongest - suffix.size() - 17), hash);
  }
  return path.parent_path() / (name + std::string(suffix));
}

std::string final_name(const std::filesystem::path& path) {
  std::filesystem::path name;
  for (const std::filesystem::path& part : path) {
    std::string text = part.string();
    if (text.ends_with(kPartial)) text.resize(text.size() - kPartial.size());
    name /= text;
  }
  return name.string();
}

Locked lock(int descriptor, const std::filesystem::path& path) {
  if (uninterrupted([&] { return ::flock(descriptor, LOCK_EX | LOCK_NB); }) == 0) return Locked::taken;
  switch (errno) {
    case EWOULDBLOCK:
      return Locked::in_use;
    case ENOSYS:
    case ENOLCK:  // NFS without its lock service
    case EOPNOTSUPP:
    case EINVAL:
      return Locked::no_locks;
    default:
      throw_write_error(path, errno);
  }
}

bool is_still(const std::filesystem::path& path, int descriptor) {
  struct stat open {
  }, named{};
  if (::fstat(descriptor, &open) != 0) throw_write_error(path, errno);
  if (::lstat(path.c_str(), &named) != 0) {
    if (errno == ENOENT) return false;
    throw_write_error(path, errno);
  }
  return open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

int create_unfinished_file(const std::filesystem::path& path) {
  return create(
      path, {},
      [&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666 | kMark); },
      ::unlink);
}

int create_unfinished_directory(const std::filesystem::path& path, std::span<const std::string_view> known) {
  return create(
      path, known,
      [&] {
        if (::mkdir(path.c_str(), 0777 | kMark) != 0) return -1;
        const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (descriptor >= 0) return descriptor;
        const int error = errno;
        if (error != ENOENT) ::rmdir(path.c_str());
        errno = error == ENOENT ? EINTR : error;  // another process took it for abandoned
        return -1;
      },
      ::rmdir);
}

void check_unfinished(const std::filesystem::path& path, std::span<const std::string_view> known) {
  remove_left_or_throw(unfinished(path), known);
}

void finish(int descriptor, const std::filesystem::path& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw_write_error(path, errno);
  // A file system without such modes has no mark, and may refuse to change one.
  if (is_marked(status) && ::fchmod(descriptor, status.st_mode & 0777U) != 0) throw_write_error(path, errno);
}

void finish_directory(int descriptor, const std::filesystem::path& path) {
  for (const std::filesystem::path& file : entries(path)) {
    struct stat status {};
    if (::lstat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode) && is_marked(status) &&
        ::chmod(file.c_str(), status.st_mode & 0777U) != 0)
      throw_write_error(file, errno);
  }
  finish(descriptor, path);
}

void mark_directory(const std::filesystem::path& path) {
  const Open open(path, O_RDONLY | O_DIRECTORY);
  struct stat status {};
  if (open.descriptor() < 0 || ::fstat(open.descriptor(), &status) != 0 ||
      ::fchmod(open.descriptor(), (status.st_mode & 0777U) | kMark) != 0 || ::fsync(open.descriptor()) != 0)
    throw_write_error(path, errno);
}

void unmark_directory(const std::filesystem::path& path) {
  const Open open(path, O_RDONLY | O_DIRECTORY);
  if (open.descriptor() < 0) throw_write_error(path, errno);
  finish(open.descriptor(), path);
}

bool has_mark(const std::filesystem::path& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) == 0) return is_marked(status);
  if (errno != ENOENT) throw_read_error(path, errno);
  return false;
}

std::uint64_t unfinished_bytes(const std::filesystem::path& path) {
  const auto blocks = [](const std::filesystem::path& file) -> std::uint64_t {
    struct stat status {};
    const bool is_file = ::lstat(file.c_str(), &status) == 0 && S_ISREG(status.st_mode);
    return is_file ? static_cast<std::uint64_t>(status.st_blocks) * 512 : 0;
  };
  const std::filesystem::path folder = path.parent_path();
  if (!is_unfinished_directory(folder)) return path.extension() == kPartial ? blocks(path) : 0;
  std::uint64_t all = 0;
  for (const std::filesystem::path& file : entries(folder)) all += blocks(file);
  return all;
}

bool is_unfinished_directory(const std::filesystem::path& path) {
  struct stat status {};
  return path.string().ends_with(kPartial) && ::lstat(path.c_str(), &status) == 0 &&
         S_ISDIR(status.st_mode) && is_marked(status);
}

std::string remove_abandoned(const std::filesystem::path& directory,
                             std::span<const std::string_view> known) {
  std::string why;
  for (const std::filesystem::path& entry : entries(directory)) {
    if (entry.extension() != kPartial) continue;
    try {
      remove_left(entry, known);
    } catch (const Error& e) {  // it takes space, but is in nobody's way until its name is needed
      if (why.empty()) why = e.what();
    }
  }
  return why;
}

}  // namespace mantissa::disk
