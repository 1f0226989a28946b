#include "mantissa/engine/runtime/process.h"

#include <malloc.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace mantissa::runtime {
namespace {

/// Returns a line "Key:   123 kB" of /proc/self/status, in bytes.
std::size_t status_bytes(const std::string& key) {
  std::ifstream in("/proc/self/status");
  std::string word;
  while (in >> word) {
    if (word == key) {
      std::size_t kib = 0;
      in >> kib;
      return kib * 1024;
    }
  }
  return 0;
}

/// Returns the bytes of the program's code that is not resident yet: pages are loaded when their code first
/// runs.
std::size_t absent_code_bytes() {
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error).string();
  std::ifstream in("/proc/self/smaps");
  std::string line;
  bool own_code = false;
  std::size_t size = 0, resident = 0;
  while (!self.empty() && std::getline(in, line)) {
    // A mapping starts with "begin-end r-xp …  path"; lines about it are "Key:  123 kB".
    const std::size_t colon = line.find(':');
    const bool about = colon != std::string::npos && line.find(' ') > colon;
    if (!about) own_code = line.find(" r-xp ") != std::string::npos && line.ends_with(self);
    if (!about || !own_code) continue;
    const std::size_t bytes = std::strtoull(line.c_str() + colon + 1, nullptr, 10) * 1024;
    if (line.starts_with("Size:")) size += bytes;
    if (line.starts_with("Rss:")) resident += bytes;
  }
  return size - resident;
}

}  // namespace

std::size_t resident_bytes() {
  return status_bytes("VmRSS:");
}
std::size_t peak_resident_bytes() {
  return status_bytes("VmHWM:");
}
void release_free_memory() {
  malloc_trim(0);
}

std::size_t baseline_bytes() {
  release_free_memory();
  // Training was measured to load two fifths of the code that is absent before it, for much of the rest is
  // kernels for other instruction sets, and to allocate about a megabyte in small pieces: 13 kinds of runs of
  // 30 to 320 MB.
  constexpr std::size_t kSmall = 900'000;
  return resident_bytes() + absent_code_bytes() * 2 / 5 + kSmall;
}

std::size_t machine_memory_bytes() {
  struct sysinfo info {};
  std::size_t bytes = sysinfo(&info) == 0 ? static_cast<std::size_t>(info.totalram) * info.mem_unit : 0;
  std::ifstream limit("/sys/fs/cgroup/memory.max");
  std::size_t most = 0;
  if (limit >> most) bytes = std::min(bytes, most);
  return bytes;
}

}  // namespace mantissa::runtime
