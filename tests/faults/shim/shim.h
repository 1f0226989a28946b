// A library that is preloaded into the program and breaks the machine under it: it counts the calls of each
// group below, and fails, shortens or interrupts one of them, or writes a journal of what changes files.
//
// Settings are variables of the environment:
//
// MANTISSA_FAULT_CALLS=GROUP,…  groups whose calls are numbered together, from 1: see kGroups; `files` has
// all
//                               groups that act on files
// MANTISSA_FAULT_AT=N           the fault happens at the N-th of these calls
// MANTISSA_FAULT_LASTING=1      … and at all later ones
// MANTISSA_FAULT_DOES=WHAT      EIO, ENOSPC, EACCES, EMFILE, ENOMEM, EAGAIN, EINTR: the call fails so;
//                               short: a read or write handles half of its bytes; KILL, TERM, INT, HUP: the
//                               process gets this signal before the call; pause: it waits before the call
// MANTISSA_FAULT_PAUSE=MS       milliseconds of `pause` (default: 100)
// MANTISSA_FAULT_UNDER=DIR      only calls on paths below DIR (absolute) count; no effect on memory and
// threads MANTISSA_FAULT_BELOW=BYTES    only allocations of fewer bytes count (default: 65,536)
// MANTISSA_FAULT_DISK=BYTES     writes below DIR fail with ENOSPC once this many bytes were written
// MANTISSA_FAULT_PLAIN_RENAMES=1  the file system neither exchanges names nor refuses to replace one
// MANTISSA_FAULT_COUNTS=FILE    receives a Counts
// MANTISSA_FAULT_JOURNAL=FILE   receives the records of journal.h
// MANTISSA_FAULT_PROGRAM=NAME   programs with another name are left alone (default: mantissa)
//
// Counting begins with main(). Calls that the C library makes inside itself, such as the write of fclose(),
// are not seen; libstdc++ writes by write() and writev(), which are.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace mantissa::faults {

enum class Group : int {
  open,      // open, openat, creat, fopen
  read,      // read, readv, pread
  write,     // write, writev, pwrite, sendfile
  sync,      // fsync, fdatasync
  rename,    // rename, renameat, renameat2, link, linkat, symlink
  list,      // opendir, fdopendir, readdir
  stat,      // stat, lstat, fstat, fstatat, statx, access
  map,       // mmap of a file
  truncate,  // ftruncate, truncate, fallocate, posix_fallocate
  remove,    // unlink, unlinkat, rmdir, remove
  mkdir,     // mkdir, mkdirat
  mode,      // chmod, fchmod, fchmodat
  lock,      // flock, and the locks of fcntl
  memory,    // malloc, calloc, realloc, aligned_alloc, posix_memalign; operator new calls these
  thread,    // pthread_create
  count
};

inline constexpr std::size_t kGroupCount = static_cast<std::size_t>(Group::count);
inline constexpr std::array<std::string_view, kGroupCount> kGroups = {
    "open",     "read",   "write", "sync", "rename", "list",   "stat",  "map",
    "truncate", "remove", "mkdir", "mode", "lock",   "memory", "thread"};

/// What the shim leaves behind, also of a process that was killed.
struct Counts {
  std::array<std::int64_t, kGroupCount> calls{};  // below DIR, from main() on
  std::int64_t numbered = 0;                      // calls of the groups of MANTISSA_FAULT_CALLS
  std::int64_t faults = 0;                        // that happened
  std::array<char, 240> first{};                  // the call and the path of the first fault
};

}  // namespace mantissa::faults
