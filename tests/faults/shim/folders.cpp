// Calls that change names, sizes and locks, or make them durable.
#include <sys/file.h>
#include <sys/stat.h>

#include <cstdarg>
#include <cstdio>

#include "faults/shim/internal.h"

using namespace mantissa::faults;

namespace {

// Runs `call` on one or two paths, and records what it did if a path is watched.
template <typename Call>
int change(Group group, const char* name, Action action, const Path& path, const Path& other,
           std::int64_t offset, const Call& call) {
  if (!is_active()) return static_cast<int>(call());
  if (fails(group, name, is_watched(path.view()) ? path : other)) return -1;
  if (!has_journal() || (!is_watched(path.view()) && !is_watched(other.view())))
    return static_cast<int>(call());
  const Recorded recorded;
  const int result = static_cast<int>(call());
  if (result == 0) recorded.add(action, path.view(), other.view(), offset);
  return result;
}

template <typename Call>
int change(Group group, const char* name, Action action, const Path& path, const Call& call) {
  return change(group, name, action, path, Path(std::string_view()), 0, call);
}

int rename_by(const char* name, int from_directory, const char* from, int to_directory, const char* to,
              unsigned flags) {
  if (flags != 0 && has_plain_renames()) {
    errno = EINVAL;
    return -1;
  }
  const Action action = (flags & RENAME_EXCHANGE) != 0 ? Action::exchange : Action::rename;
  return change(Group::rename, name, action, Path(from_directory, from), Path(to_directory, to), 0,
                [&] { return raw(SYS_renameat2, from_directory, from, to_directory, to, flags); });
}

int remove_by(const char* name, int directory, const char* path, int flags) {
  return change(Group::remove, name, (flags & AT_REMOVEDIR) != 0 ? Action::rmdir : Action::remove,
                Path(directory, path), [&] { return raw(SYS_unlinkat, directory, path, flags); });
}

int sync_by(const char* name, long number, int file) {
  return change(Group::sync, name, Action::sync, Path(file), [&] { return raw(number, file); });
}

int reserve_by(const char* name, int file, int mode, off_t offset, off_t size) {
  struct stat before {};
  raw(SYS_newfstatat, file, "", &before, AT_EMPTY_PATH);
  const Path path(file);
  if (is_active()) {
    const off_t more = offset + size > before.st_size ? offset + size - before.st_size : 0;
    const int full = fill_disk(path, static_cast<std::size_t>(more));
    if (full != 0) {
      errno = full;
      return -1;
    }
  }
  const off_t after =
      (mode & FALLOC_FL_KEEP_SIZE) != 0 || offset + size < before.st_size ? before.st_size : offset + size;
  return change(Group::truncate, name, Action::truncate, path, Path(std::string_view()), after,
                [&] { return raw(SYS_fallocate, file, mode, offset, size); });
}

// Returns true if `command` of fcntl takes a lock.
bool is_lock(int command) {
  return command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
}

int control(int file, int command, void* argument) {
  if (is_active() && is_lock(command) && fails(Group::lock, "fcntl", Path(file))) return -1;
  return static_cast<int>(raw(SYS_fcntl, file, command, argument));
}

}  // namespace

extern "C" {

int fsync(int file) {
  return sync_by("fsync", SYS_fsync, file);
}

int fdatasync(int file) {
  return sync_by("fdatasync", SYS_fdatasync, file);
}

int rename(const char* from, const char* to) {
  return rename_by("rename", AT_FDCWD, from, AT_FDCWD, to, 0);
}

int renameat(int from_directory, const char* from, int to_directory, const char* to) {
  return rename_by("renameat", from_directory, from, to_directory, to, 0);
}

int renameat2(int from_directory, const char* from, int to_directory, const char* to, unsigned flags) {
  return rename_by("renameat2", from_directory, from, to_directory, to, flags);
}

int linkat(int from_directory, const char* from, int to_directory, const char* to, int flags) {
  return change(Group::rename, "linkat", Action::link, Path(from_directory, from), Path(to_directory, to), 0,
                [&] { return raw(SYS_linkat, from_directory, from, to_directory, to, flags); });
}

int link(const char* from, const char* to) {
  return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int symlink(const char* target, const char* path) {
  return change(Group::rename, "symlink", Action::symlink, Path(AT_FDCWD, path),
                Path(std::string_view(target)), 0,
                [&] { return raw(SYS_symlinkat, target, AT_FDCWD, path); });
}

int unlink(const char* path) {
  return remove_by("unlink", AT_FDCWD, path, 0);
}

int unlinkat(int directory, const char* path, int flags) {
  return remove_by("unlinkat", directory, path, flags);
}

int rmdir(const char* path) {
  return remove_by("rmdir", AT_FDCWD, path, AT_REMOVEDIR);
}

int remove(const char* path) {
  const int saved = errno;
  const int result = remove_by("remove", AT_FDCWD, path, 0);
  if (result == 0 || errno != EISDIR) return result;
  errno = saved;
  return remove_by("remove", AT_FDCWD, path, AT_REMOVEDIR);
}

int mkdirat(int directory, const char* path, mode_t mode) {
  if (!is_active()) return static_cast<int>(raw(SYS_mkdirat, directory, path, mode));
  const Path made(directory, path);
  if (fails(Group::mkdir, "mkdir", made)) return -1;
  const Recorded recorded;
  const int result = static_cast<int>(raw(SYS_mkdirat, directory, path, mode));
  if (result == 0 && is_watched(made.view())) recorded.add(Action::mkdir, made.view(), "", mode_of(made));
  return result;
}

int fchmod(int file, mode_t mode) {
  return change(Group::mode, "fchmod", Action::mode, Path(file), Path(std::string_view()), mode,
                [&] { return raw(SYS_fchmod, file, mode); });
}

int fchmodat(int directory, const char* path, mode_t mode, int flags) {
  if (flags != 0) {  // the system call has none
    errno = ENOTSUP;
    return -1;
  }
  return change(Group::mode, "chmod", Action::mode, Path(directory, path), Path(std::string_view()), mode,
                [&] { return raw(SYS_fchmodat, directory, path, mode); });
}

int chmod(const char* path, mode_t mode) {
  return fchmodat(AT_FDCWD, path, mode, 0);
}

int mkdir(const char* path, mode_t mode) {
  return mkdirat(AT_FDCWD, path, mode);
}

int ftruncate(int file, off_t size) {
  return change(Group::truncate, "ftruncate", Action::truncate, Path(file), Path(std::string_view()), size,
                [&] { return raw(SYS_ftruncate, file, size); });
}

int ftruncate64(int file, off64_t size) {
  return ftruncate(file, size);
}

int truncate(const char* path, off_t size) {
  return change(Group::truncate, "truncate", Action::truncate, Path(AT_FDCWD, path), Path(std::string_view()),
                size, [&] { return raw(SYS_truncate, path, size); });
}

int truncate64(const char* path, off64_t size) {
  return truncate(path, size);
}

int fallocate(int file, int mode, off_t offset, off_t size) {
  return reserve_by("fallocate", file, mode, offset, size);
}

int fallocate64(int file, int mode, off64_t offset, off64_t size) {
  return reserve_by("fallocate", file, mode, offset, size);
}

int posix_fallocate(int file, off_t offset, off_t size) {
  const int saved = errno;
  const int result = reserve_by("posix_fallocate", file, 0, offset, size) == 0 ? 0 : errno;
  errno = saved;
  return result;
}

int posix_fallocate64(int file, off64_t offset, off64_t size) {
  return posix_fallocate(file, offset, size);
}

int flock(int file, int operation) {
  if (is_active() && (operation & LOCK_UN) == 0 && fails(Group::lock, "flock", Path(file))) return -1;
  return static_cast<int>(raw(SYS_flock, file, operation));
}

int fcntl(int file, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  return control(file, command, argument);
}

int fcntl64(int file, int command, ...) {
  va_list rest;
  va_start(rest, command);
  void* argument = va_arg(rest, void*);
  va_end(rest);
  return control(file, command, argument);
}
}
