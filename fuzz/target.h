// A fuzz target: a program of its own under libFuzzer, and otherwise a part of fuzz_replay (replay.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "mutate.h"

namespace mantissa::fuzz {

struct Target {
  std::string_view name;
  int (*test)(const std::uint8_t* data, std::size_t size);
  Mutator mutator;  // of its inputs' format, or null
};

#ifdef MANTISSA_REPLAY
/// All targets of the program.
std::vector<Target>& targets();

struct Registered {
  explicit Registered(const Target& target) { targets().push_back(target); }
};
#endif

}  // namespace mantissa::fuzz

#ifdef MANTISSA_REPLAY
#define MANTISSA_FUZZ_ENTRY(name, mutator) \
  static const mantissa::fuzz::Registered name##_registered({#name, test_##name, mutator});
#else
#define MANTISSA_FUZZ_ENTRY(name, mutator)                                                               \
  extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {                    \
    return test_##name(data, size);                                                                      \
  }                                                                                                      \
  extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, \
                                                 unsigned seed) {                                        \
    return mantissa::fuzz::mutate_input(data, size, most, seed, mutator);                                \
  }
#endif

/// Begins the target `name`, whose body follows and reads the `size` bytes at `data`. `mutator` is that of
/// their format, or null.
#define MANTISSA_FUZZ_TARGET(name, mutator)                           \
  static int test_##name(const std::uint8_t* data, std::size_t size); \
  MANTISSA_FUZZ_ENTRY(name, mutator)                                  \
  static int test_##name(const std::uint8_t* data, std::size_t size)
