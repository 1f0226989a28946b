// What a target asks of code that it feeds: errors are mantissa::Error, and what was read holds together.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "mantissa/base/error.h"

namespace mantissa::fuzz {

/// Ends the process, which the fuzzer takes for a crash, where `holds` is false.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %s\n", what);
  std::abort();
}

/// Runs `f` and lets a mantissa::Error go by; any other exception ends the process.
template <class F>
void expect_only_errors(F f) noexcept {
  try {
    f();
  } catch (const Error& error) {
    require(error.what()[0] != '\0', "an error has a message");
  }
}

}  // namespace mantissa::fuzz

/// The entry point of a target, under libFuzzer and in replay.cpp.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
