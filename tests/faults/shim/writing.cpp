// Calls that open and write files.
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "faults/shim/internal.h"

using namespace mantissa::faults;

namespace {

bool exists(const Path& path) {
  struct stat ignored {};
  const int saved = errno;
  const bool found = raw(SYS_newfstatat, AT_FDCWD, path.text, &ignored, AT_SYMLINK_NOFOLLOW) == 0;
  errno = saved;
  return found;
}

// Records what an open did: it may create the file, or empty it.
void record_open(const Recorded& recorded, const Path& path, bool existed, bool emptied) {
  if (!existed) recorded.add(Action::create, path.view(), "", mode_of(path));
  if (existed && emptied) recorded.add(Action::truncate, path.view());
}

int open_by(const char* call, int directory, const char* name, int flags, mode_t mode) {
  if (!is_active()) return static_cast<int>(raw(SYS_openat, directory, name, flags, mode));
  const Path path(directory, name);
  if (fails(Group::open, call, path)) return -1;
  if (!has_journal() || !is_watched(path.view()) || (flags & O_ACCMODE) == O_RDONLY)
    return static_cast<int>(raw(SYS_openat, directory, name, flags, mode));
  const Recorded recorded;
  if ((flags & O_TMPFILE) == O_TMPFILE) recorded.add(Action::unknown, "open with O_TMPFILE");
  const bool existed = exists(path);
  const int file = static_cast<int>(raw(SYS_openat, directory, name, flags, mode));
  if (file >= 0) record_open(recorded, Path(file), existed, (flags & O_TRUNC) != 0);
  return file;
}

std::FILE* stream_by(const char* name, const char* mode, const char* function) {
  using Open = std::FILE* (*)(const char*, const char*);
  const auto real = next_of<Open>(function);
  if (!is_active()) return real(name, mode);
  const Path path(AT_FDCWD, name);
  if (fails(Group::open, "fopen", path)) return nullptr;
  if (!has_journal() || !is_watched(path.view()) || std::strpbrk(mode, "wa+") == nullptr)
    return real(name, mode);
  const Recorded recorded;
  const bool existed = exists(path);
  std::FILE* stream = real(name, mode);
  if (stream != nullptr) record_open(recorded, Path(fileno(stream)), existed, *mode == 'w');
  return stream;
}

// Where the next write to a file goes.
std::int64_t place_of(int file) {
  const int saved = errno;
  struct stat status {};
  const long flags = raw(SYS_fcntl, file, F_GETFL, 0);
  std::int64_t place = raw(SYS_lseek, file, 0L, SEEK_CUR);
  if ((flags & O_APPEND) != 0 && raw(SYS_newfstatat, file, "", &status, AT_EMPTY_PATH) == 0)
    place = status.st_size;
  errno = saved;
  return place;
}

// Writes `size` bytes by `put`, which gets the number of bytes that it may write. `data` is null for
// sendfile.
template <typename Put>
ssize_t write_by(const char* call, int file, std::int64_t offset, std::size_t size, const void* data,
                 const Put& put) {
  if (!is_active()) return put(size);
  const Path path(file);
  const Verdict verdict = enter(Group::write, call, path);
  const int error = verdict.error != 0 ? verdict.error : fill_disk(path, size);
  if (error != 0) {
    errno = error;
    return -1;
  }
  const std::size_t allowed = verdict.halved && size > 1 ? size / 2 : size;
  if (!has_journal()) return put(allowed);
  const Recorded recorded;
  const std::int64_t at = offset >= 0 ? offset : place_of(file);
  const ssize_t written = put(allowed);
  if (written <= 0) return written;
  if (file == STDOUT_FILENO) {
    recorded.add(Action::print, "", "", 0, data, static_cast<std::size_t>(written));
  } else if (is_watched(path.view()) && file != STDERR_FILENO) {
    recorded.add(data == nullptr ? Action::unknown : Action::write, data == nullptr ? call : path.view(), "",
                 at, data, data == nullptr ? 0 : static_cast<std::size_t>(written));
  }
  return written;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_by("open", AT_FDCWD, path, flags, mode);
}

int open64(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_by("open", AT_FDCWD, path, flags, mode);
}

int openat(int directory, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_by("openat", directory, path, flags, mode);
}

int openat64(int directory, const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return open_by("openat", directory, path, flags, mode);
}

int creat(const char* path, mode_t mode) {
  return open_by("creat", AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, mode);
}

std::FILE* fopen(const char* path, const char* mode) {
  return stream_by(path, mode, "fopen");
}

std::FILE* fopen64(const char* path, const char* mode) {
  return stream_by(path, mode, "fopen64");
}

ssize_t write(int file, const void* data, std::size_t size) {
  return write_by("write", file, -1, size, data,
                  [&](std::size_t allowed) { return raw(SYS_write, file, data, allowed); });
}

ssize_t pwrite(int file, const void* data, std::size_t size, off_t offset) {
  return write_by("pwrite", file, offset, size, data,
                  [&](std::size_t allowed) { return raw(SYS_pwrite64, file, data, allowed, offset); });
}

ssize_t pwrite64(int file, const void* data, std::size_t size, off64_t offset) {
  return pwrite(file, data, size, offset);
}

// Parts are written one by one: a short count is an allowed result.
ssize_t writev(int file, const iovec* parts, int count) {
  ssize_t all = 0;
  for (int i = 0; i < count; ++i) {
    if (parts[i].iov_len == 0) continue;
    const ssize_t written = write(file, parts[i].iov_base, parts[i].iov_len);
    if (written < 0) return all > 0 ? all : -1;
    all += written;
    if (static_cast<std::size_t>(written) < parts[i].iov_len) break;
  }
  return all;
}

ssize_t sendfile(int to, int from, off_t* offset, std::size_t size) {
  return write_by("sendfile", to, -1, size, nullptr,
                  [&](std::size_t allowed) { return raw(SYS_sendfile, to, from, offset, allowed); });
}

ssize_t sendfile64(int to, int from, off64_t* offset, std::size_t size) {
  return sendfile(to, from, offset, size);
}

// What a stream gets is counted as printed now, before its buffer is written.
std::size_t fwrite(const void* data, std::size_t size, std::size_t count, std::FILE* stream) {
  using Write = std::size_t (*)(const void*, std::size_t, std::size_t, std::FILE*);
  static const Write real = next_of<Write>("fwrite");
  if (stream == stdout && has_journal()) {
    const Recorded recorded;
    recorded.add(Action::print, "", "", 0, data, size * count);
  }
  return real(data, size, count, stream);
}
}
