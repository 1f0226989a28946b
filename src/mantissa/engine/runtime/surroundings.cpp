#include "mantissa/engine/runtime/surroundings.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "mantissa/engine/runtime/process.h"

namespace mantissa::runtime {
namespace {

namespace fs = std::filesystem;

std::size_t number_in(const fs::path& file) {
  std::ifstream in(file);
  std::size_t value = 0;
  return in >> value ? value : 0;
}

/// Returns the model name in the driver's information file of one GPU.
std::string nvidia_model(const fs::path& information) {
  std::ifstream in(information);
  std::string line;
  while (std::getline(in, line)) {
    if (!line.starts_with("Model:")) continue;
    const std::size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
    return begin == std::string::npos ? "NVIDIA GPU" : line.substr(begin);
  }
  return "NVIDIA GPU";
}

}  // namespace

std::size_t available_memory_bytes() {
  std::ifstream in("/proc/meminfo");
  std::string word;
  std::size_t available = 0;
  while (in >> word) {
    if (word != "MemAvailable:") continue;
    in >> available;
    available *= 1024;
    break;
  }
  const std::size_t used = number_in("/sys/fs/cgroup/memory.current");
  const std::size_t limit = machine_memory_bytes();
  return std::min(available, limit - std::min(used, limit));
}

std::vector<std::string> seen_accelerators() {
  std::vector<std::string> seen;
  std::error_code error;
  for (const fs::directory_entry& gpu : fs::directory_iterator("/proc/driver/nvidia/gpus", error))
    seen.push_back(nvidia_model(gpu.path() / "information"));
  if (seen.empty() && fs::exists("/dev/nvidia0", error)) seen.emplace_back("NVIDIA GPU");
  if (fs::exists("/dev/kfd", error)) seen.emplace_back("AMD GPU");
  if (fs::exists("/dev/accel0", error)) seen.emplace_back("TPU");
  return seen;
}

std::vector<std::string> seen_launchers() {
  std::vector<std::string> seen;
  std::error_code error;
  for (const char* folder : {"/usr/bin", "/usr/local/bin", "/opt/openmpi/bin", "/opt/mpich/bin"}) {
    for (const char* program : {"mpirun", "mpiexec", "srun"}) {
      const fs::path path = fs::path(folder) / program;
      if (fs::exists(path, error)) seen.push_back(path.string());
    }
  }
  return seen;
}

}  // namespace mantissa::runtime
