#include "mantissa/core/disk/look.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
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

std::filesystem::path target_of(const std::filesystem::path& link) {
  std::array<char, PATH_MAX> text{};
  const ssize_t length = ::readlink(link.c_str(), text.data(), text.size());
  if (length < 0) throw_read_error(link, errno);
  return std::string(text.data(), static_cast<std::size_t>(length));
}

/// Returns the path without links, of the part that exists.
std::filesystem::path plain_path(const std::filesystem::path& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::absolute(followed(path), error);
  const std::filesystem::path plain = error ? whole : std::filesystem::weakly_canonical(whole, error);
  if (error) throw_read_error(path, error.value());
  return plain.has_filename() ? plain : plain.parent_path();
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

std::filesystem::path followed(const std::filesystem::path& path) {
  constexpr int kMost = 40;  // as many links as the kernel follows
  // With a trailing slash, the system would look behind the link.
  std::filesystem::path at = path.has_filename() ? path : path.parent_path();
  for (int links = 0; is_link(at); ++links) {
    if (links == kMost) throw_read_error(path, ELOOP);
    at = at.parent_path() / target_of(at);
    if (!at.has_filename()) at = at.parent_path();
  }
  return disk::exists(path) && !is_same(path, at) ? path : at;
}

bool lies_in(const std::filesystem::path& inner, const std::filesystem::path& outer) {
  if (is_same(inner, outer)) return true;
  const std::filesystem::path relative = plain_path(inner).lexically_relative(plain_path(outer));
  return !relative.empty() && *relative.begin() != "..";
}

bool is_same(const std::filesystem::path& a, const std::filesystem::path& b) {
  const std::optional<struct stat> first = status_of(a, ::stat), second = status_of(b, ::stat);
  return first && second && first->st_dev == second->st_dev && first->st_ino == second->st_ino;
}

std::chrono::system_clock::time_point changed(const std::filesystem::path& path) {
  const std::optional<struct stat> status = status_of(path, ::stat);
  if (!status) throw_read_error(path, ENOENT);
  constexpr time_t kMost = 9'000'000'000;  // the years 1684 to 2255, whose nanoseconds fit in 64 bits
  const auto& time = status->st_mtim;
  const auto since =
      std::chrono::seconds(std::clamp(time.tv_sec, -kMost, kMost)) + std::chrono::nanoseconds(time.tv_nsec);
  return std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(since));
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
