// Calls that read files and folders.
#include <dirent.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <cstdarg>

#include "faults/shim/internal.h"

using namespace mantissa::faults;

namespace {

// Reads through `number`, the system call, unless the call fails.
ssize_t read_by(long number, const char* call, int file, void* to, std::size_t size, off_t offset) {
  if (!is_active()) return raw(number, file, to, size, offset);
  const Verdict verdict = enter(Group::read, call, Path(file));
  if (verdict.error != 0) {
    errno = verdict.error;
    return -1;
  }
  return raw(number, file, to, verdict.halved && size > 1 ? size / 2 : size, offset);
}

int stat_by(const char* call, int directory, const char* path, struct stat* to, int flags) {
  if (is_active() &&
      fails(Group::stat, call, path == nullptr || *path == '\0' ? Path(directory) : Path(directory, path)))
    return -1;
  return static_cast<int>(raw(SYS_newfstatat, directory, path, to, flags));
}

void* map_by(void* at, std::size_t size, int protection, int flags, int file, off_t offset) {
  if (is_active() && file >= 0 && (flags & MAP_ANONYMOUS) == 0 && fails(Group::map, "mmap", Path(file)))
    return MAP_FAILED;
  return reinterpret_cast<void*>(raw(SYS_mmap, at, size, protection, flags, file, offset));
}

}  // namespace

extern "C" {

ssize_t read(int file, void* to, std::size_t size) {
  return read_by(SYS_read, "read", file, to, size, 0);
}

ssize_t pread(int file, void* to, std::size_t size, off_t offset) {
  return read_by(SYS_pread64, "pread", file, to, size, offset);
}

ssize_t pread64(int file, void* to, std::size_t size, off_t offset) {
  return read_by(SYS_pread64, "pread", file, to, size, offset);
}

ssize_t readv(int file, const iovec* parts, int count) {
  if (is_active() && fails(Group::read, "readv", Path(file))) return -1;
  return raw(SYS_readv, file, parts, count);
}

DIR* opendir(const char* path) {
  static const auto real = next_of<DIR* (*)(const char*)>("opendir");
  if (is_active() && fails(Group::list, "opendir", Path(AT_FDCWD, path))) return nullptr;
  return real(path);
}

DIR* fdopendir(int directory) {
  static const auto real = next_of<DIR* (*)(int)>("fdopendir");
  if (is_active() && fails(Group::list, "fdopendir", Path(directory))) return nullptr;
  return real(directory);
}

dirent* readdir(DIR* directory) {
  static const auto real = next_of<dirent* (*)(DIR*)>("readdir");
  if (is_active() && fails(Group::list, "readdir", Path(dirfd(directory)))) return nullptr;
  return real(directory);
}

dirent64* readdir64(DIR* directory) {
  static const auto real = next_of<dirent64* (*)(DIR*)>("readdir64");
  if (is_active() && fails(Group::list, "readdir", Path(dirfd(directory)))) return nullptr;
  return real(directory);
}

int stat(const char* path, struct stat* to) {
  return stat_by("stat", AT_FDCWD, path, to, 0);
}

int stat64(const char* path, struct stat64* to) {
  return stat_by("stat", AT_FDCWD, path, reinterpret_cast<struct stat*>(to), 0);
}

int lstat(const char* path, struct stat* to) {
  return stat_by("lstat", AT_FDCWD, path, to, AT_SYMLINK_NOFOLLOW);
}

int lstat64(const char* path, struct stat64* to) {
  return stat_by("lstat", AT_FDCWD, path, reinterpret_cast<struct stat*>(to), AT_SYMLINK_NOFOLLOW);
}

int fstat(int file, struct stat* to) {
  return stat_by("fstat", file, "", to, AT_EMPTY_PATH);
}

int fstat64(int file, struct stat64* to) {
  return stat_by("fstat", file, "", reinterpret_cast<struct stat*>(to), AT_EMPTY_PATH);
}

int fstatat(int directory, const char* path, struct stat* to, int flags) {
  return stat_by("fstatat", directory, path, to, flags);
}

int fstatat64(int directory, const char* path, struct stat64* to, int flags) {
  return stat_by("fstatat", directory, path, reinterpret_cast<struct stat*>(to), flags);
}

int statx(int directory, const char* path, int flags, unsigned mask, struct statx* to) {
  if (is_active() && fails(Group::stat, "statx", *path == '\0' ? Path(directory) : Path(directory, path)))
    return -1;
  return static_cast<int>(raw(SYS_statx, directory, path, flags, mask, to));
}

int access(const char* path, int mode) {
  if (is_active() && fails(Group::stat, "access", Path(AT_FDCWD, path))) return -1;
  return static_cast<int>(raw(SYS_faccessat, AT_FDCWD, path, mode));
}

void* mmap(void* at, std::size_t size, int protection, int flags, int file, off_t offset) {
  return map_by(at, size, protection, flags, file, offset);
}

void* mmap64(void* at, std::size_t size, int protection, int flags, int file, off64_t offset) {
  return map_by(at, size, protection, flags, file, offset);
}
}
