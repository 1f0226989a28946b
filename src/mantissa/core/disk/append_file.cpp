#include "mantissa/core/disk/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/file.h"

namespace mantissa::disk {
namespace {

/// Replaces the file at `path` by a new one with the same bytes. Its other names keep the old one.
void replace_by_copy(const std::filesystem::path& path) {
  constexpr std::uint64_t kPiece = std::uint64_t{1} << 20U;
  const File from = File::open_to_read(path);
  AtomicFile to(path);
  const std::uint64_t size = from.size();
  std::vector<std::byte> piece(std::min(size, kPiece));
  for (std::uint64_t at = 0; at < size; at += piece.size()) {
    piece.resize(std::min(size - at, kPiece));
    from.read_at(at, piece);
    to.write(piece);
  }
  to.commit();
}

}  // namespace

AppendFile::AppendFile(const std::filesystem::path& path, Open how) : path_(path) {
  const int exclusive = how == Open::must_be_new ? O_EXCL : 0;
  if (!open(exclusive)) return;
  ::close(std::exchange(descriptor_, -1));
  replace_by_copy(path);
  open(exclusive);
}

/// Opens the file. Returns true if it has other names.
bool AppendFile::open(int exclusive) {
  // Without O_NONBLOCK, opening a pipe would block until somebody reads it.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  descriptor_ = ::open(path_.c_str(), kFlags | exclusive, 0666);
  struct stat status {};
  if (descriptor_ < 0 && errno == ELOOP)
    throw FileError("{}: is a link, which is not followed; remove it", path_.string());
  if (descriptor_ >= 0 && ::fstat(descriptor_, &status) != 0) {
    const int error = errno;
    ::close(descriptor_);
    throw_read_error(path_, error);
  }
  const bool is_pipe = descriptor_ < 0 && errno == ENXIO, is_folder = descriptor_ < 0 && errno == EISDIR;
  if (is_pipe || is_folder || (descriptor_ >= 0 && !S_ISREG(status.st_mode))) {
    if (descriptor_ >= 0) ::close(descriptor_);
    throw FileError("{}: is not a regular file; move it away", path_.string());
  }
  if (descriptor_ < 0) {
    constexpr std::array kOfTheMachine = {ENOSPC, EDQUOT, EMFILE,
                                          ENFILE, ENOMEM, EIO};  // no other place helps
    if (std::ranges::find(kOfTheMachine, errno) != kOfTheMachine.end()) throw_write_error(path_, errno);
  }
  if (descriptor_ < 0) {
    throw FileError("{}: cannot be opened for writing: {}; choose another place with --out", path_.string(),
                    std::generic_category().message(errno));
  }
  return status.st_nlink > 1;
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void AppendFile::write(std::string_view record) {
  while (!record.empty()) {
    const ssize_t put = uninterrupted([&] { return ::write(descriptor_, record.data(), record.size()); });
    if (put < 0) throw_write_error(path_, errno);
    record.remove_prefix(static_cast<std::size_t>(put));
  }
}

void AppendFile::truncate(std::uint64_t bytes) {
  if (uninterrupted([&] { return ::ftruncate(descriptor_, static_cast<off_t>(bytes)); }) != 0)
    throw_write_error(path_, errno);
}

void AppendFile::sync() {
  if (uninterrupted([&] { return ::fdatasync(descriptor_); }) != 0 && errno != EINVAL)
    throw_write_error(path_, errno);
}

}  // namespace mantissa::disk
