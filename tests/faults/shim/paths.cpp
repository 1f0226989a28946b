// Absolute paths, without allocations.
#include <sys/stat.h>

#include <cstring>

#include "faults/shim/internal.h"

namespace mantissa::faults {
namespace {

void append(char* to, std::string_view text) {
  const std::size_t used = std::strlen(to), size = std::min(text.size(), std::size_t{PATH_MAX} - 1 - used);
  std::memcpy(to + used, text.data(), size);
  to[used + size] = '\0';
}

void read_descriptor(int descriptor, char* to) {
  char link[40] = "/proc/self/fd/";
  char digits[16];
  std::size_t n = sizeof digits;
  for (unsigned value = static_cast<unsigned>(descriptor); n == sizeof digits || value > 0; value /= 10)
    digits[--n] = static_cast<char>('0' + value % 10);
  append(link, {digits + n, sizeof digits - n});
  const long size = raw(SYS_readlinkat, AT_FDCWD, link, to, static_cast<long>(PATH_MAX) - 1);
  to[size < 0 ? 0 : size] = '\0';
  if (to[0] != '/') to[0] = '\0';  // a pipe or a socket
}

}  // namespace

Path::Path(std::string_view plain) {
  append(text, plain);
}

Path::Path(int directory, const char* path) {
  const int saved = errno;
  if (path == nullptr) path = "";
  if (*path != '/') {
    if (directory == AT_FDCWD) {
      if (raw(SYS_getcwd, text, sizeof text) < 0) text[0] = '\0';
    } else {
      read_descriptor(directory, text);
    }
    if (*path != '\0') append(text, "/");
  }
  append(text, path);
  normalize();
  errno = saved;
}

Path::Path(int descriptor) {
  const int saved = errno;
  read_descriptor(descriptor, text);
  errno = saved;
}

void Path::normalize() {
  std::size_t out = 0;
  for (std::size_t in = 0; text[in] == '/';) {
    while (text[in] == '/') ++in;
    std::size_t end = in;
    while (text[end] != '/' && text[end] != '\0') ++end;
    const std::string_view part(text + in, end - in);
    if (part == "..") {
      while (out > 0 && text[--out] != '/') {
      }
    } else if (!part.empty() && part != ".") {
      text[out++] = '/';
      std::memmove(text + out, text + in, part.size());
      out += part.size();
    }
    in = end;
  }
  if (out == 0 && text[0] == '/') out = 1;
  text[out] = '\0';
}

std::int64_t mode_of(const Path& path) {
  const int saved = errno;
  struct stat status {};
  raw(SYS_newfstatat, AT_FDCWD, path.text, &status, AT_SYMLINK_NOFOLLOW);
  errno = saved;
  return status.st_mode & 07777;
}

}  // namespace mantissa::faults
