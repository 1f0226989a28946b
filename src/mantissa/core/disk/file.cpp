#include "mantissa/core/disk/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/base/quantities.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/core/disk/unfinished.h"

namespace mantissa::disk {
namespace {

using namespace std::chrono_literals;

// Linux transfers at most 2 GiB − 4 KiB in one call.
constexpr std::size_t kLargestCall = std::size_t{1} << 30;

constexpr std::chrono::seconds kWaitForReader = 5s;

std::string reason(int error) {
  return std::generic_category().message(error);
}

/// Throws for a disk without space for `wanted` bytes, or 0 if that is unknown.
[[noreturn]] void throw_full(const std::filesystem::path& path, std::uint64_t wanted) {
  const std::string name = final_name(path);
  if (guess_kind(path) == Kind::other) {
    throw ResourceError(
        fmt::format("{}: the device accepts no more bytes: {}; choose another output", name, reason(ENOSPC)));
  }
  struct statvfs disk {};
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  if (::statvfs(folder.c_str(), &disk) != 0)
    throw ResourceError(fmt::format("{}: the disk is full; free some space or write to another disk", name));
  if (disk.f_files > 0 && disk.f_favail == 0)
    throw ResourceError(fmt::format("{}: the disk has no room for another file; remove some files", name));
  std::uint64_t left = std::uint64_t{disk.f_bavail} * disk.f_frsize;
  try {
    left += unfinished_bytes(path);  // which the error removes
  } catch (const Error&) {           // this error matters more
  }
  constexpr std::uint64_t kEnough = std::uint64_t{1} << 26;
  if (left >= kEnough + wanted) {
    throw ResourceError(fmt::format(
        "{}: write failed: {}, although {} are free on its disk; check quotas, or write to another "
        "disk",
        name, reason(ENOSPC), human_bytes(static_cast<double>(left))));
  }
  throw ResourceError(
      fmt::format("{}: the disk is full{}, {} free; free some space or write to another disk", name,
                  wanted > 0 ? fmt::format(": it needs {}", human_bytes(static_cast<double>(wanted))) : "",
                  human_bytes(static_cast<double>(left))));
}

}  // namespace

File File::open_to_read(const std::filesystem::path& path) {
  // Without O_NONBLOCK, opening a pipe would block forever.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      throw FileError(fmt::format("{}: there is no such file; check the path", path.string()));
    }
    throw_read_error(path, errno);
  }
  File file(descriptor, path);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw_read_error(path, errno);
  if (!S_ISREG(status.st_mode)) {
    throw FileError(fmt::format("{}: is not a regular file; give the path of a file", path.string()));
  }
  return file;
}

File File::open_to_complete(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) throw_write_error(path, errno);
  File file(descriptor, path);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw_write_error(path, errno);
  if (!S_ISREG(status.st_mode)) throw FileError(fmt::format("{}: is not a regular file", path.string()));
  return file;
}

File File::open_device(const std::filesystem::path& path) {
  // Without O_NONBLOCK, a pipe that nobody reads would be waited for without end. A reader started beside
  // this program needs a moment.
  const auto open = [&path] {
    return ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NONBLOCK | O_CLOEXEC, 0666);
  };
  int descriptor = open();
  for (auto waited = 0ms; descriptor < 0 && errno == ENXIO && waited < kWaitForReader; waited += 10ms) {
    std::this_thread::sleep_for(10ms);
    descriptor = open();
  }
  if (descriptor < 0 && errno == ENXIO)
    throw FileError(
        fmt::format("{}: is a pipe that no process opened to read in {} seconds; start its reader",
                    path.string(), kWaitForReader.count()));
  if (descriptor < 0) throw_write_error(path, errno);
  File file(descriptor, path);
  const int flags = ::fcntl(descriptor, F_GETFL);
  if (flags < 0 || ::fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK) != 0) throw_write_error(path, errno);
  return file;
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File::File(File&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), path_(std::move(other.path_)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(path_, other.path_);
  return *this;
}

std::uint64_t File::size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) {
    throw_read_error(path_, errno);
  }
  return static_cast<std::uint64_t>(status.st_size);
}

void File::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const std::size_t wanted = std::min(out.size(), kLargestCall);
    const ssize_t got =
        uninterrupted([&] { return ::pread(descriptor_, out.data(), wanted, static_cast<off_t>(offset)); });
    if (got < 0) throw_read_error(path_, errno);
    if (got == 0) {
      throw FileError(fmt::format("{}: was truncated to {} bytes while it was read; copy it again",
                                  path_.string(), offset));
    }
    offset += static_cast<std::uint64_t>(got);
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

void File::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t wanted = std::min(bytes.size(), kLargestCall);
    const ssize_t put = uninterrupted([&] { return ::write(descriptor_, bytes.data(), wanted); });
    if (put < 0) throw_write_error(path_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void File::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t wanted = std::min(bytes.size(), kLargestCall);
    const ssize_t put = uninterrupted(
        [&] { return ::pwrite(descriptor_, bytes.data(), wanted, static_cast<off_t>(offset)); });
    if (put < 0) throw_write_error(path_, errno);
    offset += static_cast<std::uint64_t>(put);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void File::reserve(std::uint64_t bytes) {
  const auto length = static_cast<off_t>(bytes);
  if (uninterrupted([&] { return ::fallocate(descriptor_, 0, 0, length); }) == 0) return;
  const int error = errno;
  // The system may have taken part of the space, or all that was free.
  if (error == ENOSPC && ::ftruncate(descriptor_, 0) == 0) throw_full(path_, bytes);
  if (error != EOPNOTSUPP && error != ENOSYS) throw_write_error(path_, error);
  if (uninterrupted([&] { return ::ftruncate(descriptor_, length); }) != 0) throw_write_error(path_, errno);
}

void File::sync() const {
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0 && errno != EINVAL)
    throw_write_error(path_, errno);
}

void File::close() {
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) throw_write_error(path_, errno);
}

void remove_file(const std::filesystem::path& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) throw_remove_error(path, errno);
}

void make_directories(const std::filesystem::path& path) {
  std::filesystem::path made;
  for (const std::filesystem::path& part : path) {
    made /= part;
    if (part.empty() || disk::is_directory(made)) continue;
    if (::mkdir(made.c_str(), 0777) == 0) {
      sync_name(made);
      continue;
    }
    const int error = errno;
    if (error == EEXIST && is_link(made) && !disk::exists(made)) {  // one that leads nowhere
      make_directories(followed(made));
      continue;
    }
    if (error == EEXIST && disk::is_directory(made)) continue;  // another process has made it
    const bool is_path = error == EEXIST || error == EACCES || error == EPERM || error == EROFS ||
                         error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG || error == ELOOP;
    if (!is_path) throw_write_error(made, error);  // of the disk or the system
    throw FileError(fmt::format(
        "{}: cannot create the directory: {}; choose another path", name_in_quotes(path.string()),
        error == EEXIST
            ? guess_kind(made) == Kind::file ? "a file has this name" : "a device or a pipe has this name"
            : reason(error)));
  }
}

namespace {

/// Returns errno of a sync of `directory`, or 0, also where such a sync is not possible.
int synced(const std::filesystem::path& directory) {
  const int descriptor =
      ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno == EACCES ? 0 : errno;  // a folder without read permission
  const int error = uninterrupted([&] { return ::fsync(descriptor); }) == 0 ? 0 : errno;
  ::close(descriptor);
  return error == EINVAL || error == ENOSYS ? 0 : error;
}

}  // namespace

void sync_directory(const std::filesystem::path& directory) {
  if (const int error = synced(directory); error != 0) throw_write_error(directory, error);
}

void sync_name(const std::filesystem::path& path) {
  const int error = synced(path.parent_path());
  if (error == 0) return;
  const bool descriptors = error == EMFILE || error == ENFILE;
  throw ResourceError(fmt::format(
      "{}: is in place, but a power loss may take it away: its folder cannot be synced: {}. Fix: {}, and run the "
      "command again",
      final_name(path), reason(error),
      descriptors       ? "raise the limit (ulimit -n)"
      : error == ENOMEM ? "free some memory"
                        : "check the disk"));
}

std::string read_text_file(const std::filesystem::path& path, std::uint64_t limit) {
  const File file = File::open_to_read(path);
  const std::uint64_t size = file.size();
  if (size > limit) {
    throw FileError(
        fmt::format("{}: has {} bytes, but such a file has at most {}; check that it is the right file",
                    path.string(), size, limit));
  }
  std::string text(size, '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

namespace {

/// Returns `name` for a message: an empty path is the current folder.
std::string place(const std::string& name) {
  return name.empty() || name == "." ? "the current folder" : name;
}

}  // namespace

void throw_read_error(const std::filesystem::path& path, int error) {
  const std::string what = fmt::format("{}: cannot be read: {}", place(path.string()), reason(error));
  if (error == ENOMEM) throw ResourceError(what + "; free some memory");
  if (error == EMFILE || error == ENFILE) throw ResourceError(what + "; raise the limit (ulimit -n)");
  if (error == EINTR) throw ReadError(what + "; run the command again");
  if (error == EISDIR) throw FileError(what + "; give the path of a file");
  throw ReadError(what + "; check its permissions and its disk");
}

void throw_remove_error(const std::filesystem::path& path, int error) {
  const std::string what = fmt::format("{}: cannot be removed: {}", place(path.string()), reason(error));
  switch (error) {
    case EACCES:
    case EPERM:
    case EROFS:
      throw FileError(what + ". Fix: give this user the right to, or remove it as its owner");
    case ENOTEMPTY:
    case EEXIST:
      throw FileError(what + ". Fix: move away what is in it");
    default:
      throw ResourceError(what + ". Fix: check the disk, and remove it");
  }
}

void throw_write_error(const std::filesystem::path& path, int error) {
  const std::string name = place(final_name(path));
  switch (error) {
    case ENOSPC:
      throw_full(path, 0);
    case EDQUOT:
      throw ResourceError(
          fmt::format("{}: your disk quota is used up; free some space or write to another disk", name));
    case EFBIG:
      throw ResourceError(fmt::format(
          "{}: exceeds the file size limit; raise it (ulimit -f) or use a file system for larger files",
          name));
    case EMFILE:
    case ENFILE:
      throw ResourceError(
          fmt::format("{}: cannot be written: {}; raise the limit (ulimit -n)", name, reason(error)));
    case ENOMEM:
      throw ResourceError(fmt::format("{}: cannot be written: {}; free some memory", name, reason(error)));
    case ENOENT:
    case ENOTDIR:
      throw FileError(fmt::format("{}: its folder does not exist; create it or check the path", name));
    case ENAMETOOLONG:
      throw FileError(fmt::format("{}: cannot be written: {}; choose a shorter name", name, reason(error)));
    case EISDIR:
      throw FileError(fmt::format("{}: is a folder; give the path of a file", name));
    case EACCES:
    case EPERM:
    case EROFS:
      throw FileError(fmt::format("{}: cannot be written: {}; choose a writable path", name, reason(error)));
    case EBUSY:
    case EXDEV:
      throw FileError(fmt::format(
          "{}: cannot be replaced: {}; it is a mount point, or in use. Give a directory in it, or another place",
          name, reason(error)));
    case EINTR:
      throw ResourceError(fmt::format("{}: write failed: {}; run the command again", name, reason(error)));
    default:
      throw ResourceError(fmt::format("{}: write failed: {}; check the disk", name, reason(error)));
  }
}

}  // namespace mantissa::disk
