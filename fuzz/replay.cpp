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

#include "target.h"

namespace fs = std::filesystem;
using mantissa::fuzz::Target;

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

void run(const Target& target, const std::string& bytes) {
  target.test(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
}

void run_mutants(const Target& target, const fs::path& path, const std::string& bytes, unsigned mutants) {
  for (unsigned seed = 1; seed <= mutants; ++seed) {
    std::string mutant = bytes;
    mutant.resize(std::max(kMost, bytes.size()));
    mutant.resize(mantissa::fuzz::mutate_input(reinterpret_cast<std::uint8_t*>(mutant.data()), bytes.size(),
                                               mutant.size(), seed, target.mutator));
    std::printf("%s, mutant %u\n", path.c_str(), seed);
    std::fflush(stdout);
    run(target, mutant);
  }
}

}  // namespace

std::vector<Target>& mantissa::fuzz::targets() {
  static std::vector<Target> all;
  return all;
}

int main(int count, char** arguments) {
  std::vector<std::string> words(arguments + 1, arguments + count);
  unsigned mutants = 8;
  if (words.size() > 1 && words[0] == "--mutants") {
    mutants = static_cast<unsigned>(std::strtoul(words[1].c_str(), nullptr, 10));
    words.erase(words.begin(), words.begin() + 2);
  }
  const std::vector<Target>& all = mantissa::fuzz::targets();
  const auto target = words.empty() ? all.end() : std::ranges::find(all, words[0], &Target::name);
  if (target == all.end()) {
    std::fprintf(stderr, "usage: fuzz_replay [--mutants N] TARGET INPUT…\ntargets:");
    for (const Target& t : all) std::fprintf(stderr, " %s", std::string(t.name).c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  std::size_t runs = 0;
  for (std::size_t i = 1; i < words.size(); ++i) {
    for (const fs::path& path : inputs(words[i])) {
      std::ifstream file(path, std::ios::binary);
      if (!file) {
        std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
        return 2;
      }
      const std::string bytes{std::istreambuf_iterator<char>(file), {}};
      std::printf("%s\n", path.c_str());
      std::fflush(stdout);  // the last line then names the input of a crash
      run(*target, bytes);
      if (target->mutator != nullptr) run_mutants(*target, path, bytes, mutants);
      ++runs;
    }
  }
  if (runs == 0) std::fprintf(stderr, "no inputs; pass files or folders\n");
  return runs == 0 ? 2 : 0;
}
