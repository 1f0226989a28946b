#include "mantissa/core/disk/look.h"

#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>

#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/file.h"

namespace mantissa::disk {
namespace {

/// Returns null if nothing has this name. `look` is stat or lstat.
template <class Look>
std::optional<struct stat> status_of(const std::filesystem::path& path, Look look) {
  struct stat status {};
  if (look(path.c_str(), &status) == 0) return status;
  // Nothing can have a name that is too long.
  if (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG) throw_read_error(path, errno);
  return std::nullopt;
}

}  // namespace

Kind kind_of(const std::filesystem::path& path) {
  const std::optional<struct stat> status = status_of(path, ::stat);
  if (!status) return Kind::absent;
  if (S_ISREG(status->st_mode)) return Kind::file;
  return S_ISDIR(status->st_mode) ? Kind::directory : Kind::other;
}

bool exists(const std::filesystem::path& path) {
  return kind_of(path) != Kind::absent;
}

bool is_file(const std::filesystem::path& path) {
  return kind_of(path) == Kind::file;
}

bool is_directory(const std::filesystem::path& path) {
  return kind_of(path) == Kind::directory;
}

bool has_name(const std::filesystem::path& path) {
  return status_of(path, ::lstat).has_value();
}

bool is_link(const std::filesystem::path& path) {
  const std::optional<struct stat> status = status_of(path, ::lstat);
  return status && S_ISLNK(status->st_mode);
}

bool is_same(const std::filesystem::path& a, const std::filesystem::path& b) {
  const std::optional<struct stat> first = status_of(a, ::stat), second = status_of(b, ::stat);
  return first && second && first->st_dev == second->st_dev && first->st_ino == second->st_ino;
}

std::vector<std::filesystem::path> entries(const std::filesystem::path& directory) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(directory.c_str()), ::closedir);
  if (!open) throw_read_error(directory, errno);
  std::vector<std::filesystem::path> paths;
  for (;;) {
    errno = 0;
    const dirent* entry = ::readdir(open.get());
    if (entry == nullptr && errno != 0) throw_read_error(directory, errno);
    if (entry == nullptr) break;
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") paths.push_back(directory / name);
  }
  std::ranges::sort(paths);
  return paths;
}

Kind guess_kind(const std::filesystem::path& path) {
  try {
    return kind_of(path);
  } catch (const Error&) {
    return Kind::absent;
  }
}

}  // namespace mantissa::disk
