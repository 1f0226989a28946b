#include "mantissa/files/io/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "mantissa/core/base/error.h"
#include "mantissa/core/base/printable.h"

namespace mantissa::io {
namespace {

// Linux transfers at most 2 GiB − 4 KiB in one call.
constexpr std::size_t kLargestCall = std::size_t{1} << 30;

std::string reason(int error) {
  return std::generic_category().message(error);
}

/// Returns `path` without kPartial at the end of its parts.
std::string final_name(const std::filesystem::path& path) {
  std::filesystem::path name;
  for (const std::filesystem::path& part : path) {
    std::string text = part.string();
    if (text.ends_with(kPartial)) text.resize(text.size() - kPartial.size());
    name /= text;
  }
  return name.string();
}

}  // namespace

File File::open_to_read(const std::filesystem::path& path) {
  // Without O_NONBLOCK, opening a pipe would block forever.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      throw FileError(fmt::format("{}: there is no such file; check the path", path.string()));
    }
    throw FileError(fmt::format("{}: cannot be read: {}", path.string(), reason(errno)));
  }
  File file(descriptor, path);
  struct stat status {};
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    throw FileError(fmt::format("{}: is not a regular file; give the path of a file", path.string()));
  }
  return file;
}

File File::create(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) throw_write_error(path, errno);
  return File(descriptor, path);
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
    throw FileError(fmt::format("{}: cannot be read: {}", path_.string(), reason(errno)));
  }
  return static_cast<std::uint64_t>(status.st_size);
}

void File::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  while (!out.empty()) {
    const std::size_t wanted = std::min(out.size(), kLargestCall);
    const ssize_t got = ::pread(descriptor_, out.data(), wanted, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw FileError(fmt::format("{}: cannot be read: {}", path_.string(), reason(errno)));
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
    const ssize_t put = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kLargestCall));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw_write_error(path_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void File::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t wanted = std::min(bytes.size(), kLargestCall);
    const ssize_t put = ::pwrite(descriptor_, bytes.data(), wanted, static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) throw_write_error(path_, errno);
    offset += static_cast<std::uint64_t>(put);
    bytes = bytes.subspan(static_cast<std::size_t>(put));
  }
}

void File::reserve(std::uint64_t bytes) {
  int error = 0;
  do {
    error = ::fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == 0) return;
  if (error != EOPNOTSUPP && error != ENOSYS) throw_write_error(path_, error);
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) throw_write_error(path_, errno);
}

void File::sync() {
  if (::fsync(descriptor_) != 0 && errno != EINVAL) throw_write_error(path_, errno);
}

void File::close() {
  if (::close(std::exchange(descriptor_, -1)) != 0 && errno != EINTR) throw_write_error(path_, errno);
}

void make_directories(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error && (error.value() == ENOSPC || error.value() == EDQUOT)) throw_write_error(path, error.value());
  if (error || !std::filesystem::is_directory(path, error)) {
    throw FileError(fmt::format("{}: cannot create the directory: {}; choose another path",
                                in_quotes(path.string()),
                                error ? reason(error.value()) : "a file has this name"));
  }
}

bool exists(const std::filesystem::path& path) {
  std::error_code error;
  const bool there = std::filesystem::exists(path, error);
  if (error) throw FileError(fmt::format("{}: cannot be read: {}", path.string(), error.message()));
  return there;
}

void sync_directory(const std::filesystem::path& directory) {
  const int descriptor =
      ::open(directory.empty() ? "." : directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;  // a folder without read permission cannot be synced
  const int error = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  if (error == EIO || error == ENOSPC || error == EDQUOT) throw_write_error(directory, error);
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

void throw_write_error(const std::filesystem::path& path, int error) {
  const std::string name = final_name(path);
  switch (error) {
    case ENOSPC: {
      std::error_code ignored;
      const auto space = std::filesystem::space(path.has_parent_path() ? path.parent_path() : ".", ignored);
      const std::uint64_t left = ignored ? 0 : space.available;
      throw ResourceError(
          fmt::format("{}: the disk is full ({:.1f} MB free); free some space or write to another disk", name,
                      static_cast<double>(left) / 1e6));
    }
    case EDQUOT:
      throw ResourceError(
          fmt::format("{}: your disk quota is used up; free some space or write to another disk", name));
    case EFBIG:
      throw ResourceError(fmt::format(
          "{}: exceeds the file size limit; raise it (ulimit -f) or use a file system for larger files",
          name));
    case ENOENT:
    case ENOTDIR:
      throw FileError(fmt::format("{}: its folder does not exist; create it or check the path", name));
    case EISDIR:
      throw FileError(fmt::format("{}: is a folder; give the path of a file", name));
    case EACCES:
    case EPERM:
    case EROFS:
      throw FileError(fmt::format("{}: cannot be written: {}; choose a writable path", name, reason(error)));
    default:
      throw ResourceError(fmt::format("{}: write failed: {}; check the disk", name, reason(error)));
  }
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 120;
  const auto character_start = [&](std::size_t at) {  // moves to the start of a UTF-8 character
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
    return at;
  };
  std::string shown(text);
  if (text.size() > kShown) {
    shown = fmt::format("{}...{}", text.substr(0, character_start(80)),
                        text.substr(character_start(text.size() - 30)));
  }
  return '"' + printable(shown) + '"';
}

}  // namespace mantissa::io
