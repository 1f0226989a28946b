#include "mantissa/runtime/process.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>

namespace mantissa::runtime {
namespace {

/// A line "Key:   123 kB" of /proc/self/status, in bytes.
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

}  // namespace

std::size_t resident_bytes() {
  return status_bytes("VmRSS:");
}
std::size_t peak_resident_bytes() {
  return status_bytes("VmHWM:");
}
std::size_t baseline_bytes() {
  return resident_bytes();
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
