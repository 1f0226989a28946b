// What the parts of the shim share.
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstddef>
#include <string_view>

#include "faults/shim/journal.h"
#include "faults/shim/shim.h"

namespace mantissa::faults {

/// An absolute path without `.`, `..` and double slashes. No memory is allocated for it.
struct Path {
  char text[PATH_MAX] = "";
  explicit Path(std::string_view plain);
  Path(int directory, const char* path);  // as for openat()
  explicit Path(int descriptor);          // of an open file; empty for a pipe
  std::string_view view() const { return text; }

 private:
  void normalize();
};

/// What a call shall do.
struct Verdict {
  int error = 0;        // the call fails with it
  bool halved = false;  // the call handles half of its bytes
};

bool is_active();                        // in main() of the program
bool is_watched(std::string_view path);  // below the directory

/// Counts a call on a file, and says what it shall do.
Verdict enter(Group group, const char* call, const Path& path);
/// The same for memory and threads.
Verdict enter(Group group, const char* call, std::size_t bytes);
/// Counts bytes that a call is going to write, and fails it where the disk is full.
bool has_plain_renames();
int fill_disk(const Path& path, std::size_t bytes);

/// Serializes calls that change files with their records, if there is a journal.
class Recorded {
 public:
  Recorded();
  ~Recorded();
  Recorded(const Recorded&) = delete;
  Recorded& operator=(const Recorded&) = delete;
  void add(Action action, std::string_view path, std::string_view other = {}, std::int64_t offset = 0,
           const void* data = nullptr, std::size_t size = 0) const;
};
bool has_journal();
/// Returns the mode of what a path names, without its kind.
std::int64_t mode_of(const Path& path);

/// A system call by its number; sets errno.
template <typename... Arguments>
long raw(long number, Arguments... arguments) {
  return ::syscall(number, arguments...);
}

/// The next definition of a function after this library's.
void* next(const char* name);
template <typename Function>
Function next_of(const char* name) {
  return reinterpret_cast<Function>(next(name));
}

/// Enters a call that fails with -1. Returns true if it fails now.
inline bool fails(Group group, const char* call, const Path& path) {
  const int saved = errno;
  const Verdict verdict = enter(group, call, path);
  errno = verdict.error != 0 ? verdict.error : saved;
  return verdict.error != 0;
}

}  // namespace mantissa::faults
