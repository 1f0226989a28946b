// Runs a target on files and folders of inputs without a fuzzer, which makes the corpus a regression test. If
// the target has a mutator, mutants of each input follow, the same ones each time: 8, or as many as
// "--mutants N" says.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "check.h"

namespace fs = std::filesystem;

extern "C" __attribute__((weak)) std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                                                     std::size_t most, unsigned seed);

/// Changes, removes or adds one byte. libFuzzer does more.
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most) {
  static std::minstd_rand random;
  const std::size_t at = size == 0 ? 0 : random() % size;
  const auto byte = static_cast<std::uint8_t>(random());
  const std::size_t what = random() % 3;
  if (what == 0 && size < most) {
    std::copy_backward(data + at, data + size, data + size + 1);
    data[at] = byte;
    return size + 1;
  }
  if (size == 0) return 0;
  if (what == 1 && size > 1) {
    std::copy(data + at + 1, data + size, data + at);
    return size - 1;
  }
  data[at] = byte;
  return size;
}

namespace {

constexpr std::size_t kMost = 1 << 14;

std::vector<fs::path> inputs(const fs::path& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

void run(const std::string& bytes) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

void run_mutants(const fs::path& path, const std::string& bytes, unsigned mutants) {
  for (unsigned seed = 1; seed <= mutants; ++seed) {
    std::string mutant = bytes;
    mutant.resize(std::max(kMost, bytes.size()));
    mutant.resize(LLVMFuzzerCustomMutator(reinterpret_cast<std::uint8_t*>(mutant.data()), bytes.size(),
                                          mutant.size(), seed));
    std::printf("%s, mutant %u\n", path.c_str(), seed);
    std::fflush(stdout);
    run(mutant);
  }
}

}  // namespace

int main(int count, char** arguments) {
  std::size_t runs = 0;
  unsigned mutants = 8;
  int first = 1;
  if (count > 2 && std::string_view(arguments[1]) == "--mutants") {
    mutants = static_cast<unsigned>(std::strtoul(arguments[2], nullptr, 10));
    first = 3;
  }
  for (int i = first; i < count; ++i) {
    for (const fs::path& path : inputs(arguments[i])) {
      std::ifstream file(path, std::ios::binary);
      if (!file) {
        std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
        return 2;
      }
      const std::string bytes{std::istreambuf_iterator<char>(file), {}};
      std::printf("%s\n", path.c_str());
      std::fflush(stdout);  // the last line then names the input of a crash
      run(bytes);
      if (LLVMFuzzerCustomMutator != nullptr) run_mutants(path, bytes, mutants);
      ++runs;
    }
  }
  if (runs == 0) std::fprintf(stderr, "no inputs; pass files or folders\n");
  return runs == 0 ? 2 : 0;
}
