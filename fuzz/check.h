// Checks for fuzz targets: only mantissa::Error is thrown, and parsed values are consistent.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "mantissa/core/base/error.h"

namespace mantissa::fuzz {

/// Aborts the process, which the fuzzer reports as a crash, unless `holds`.
inline void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "check failed: %s\n", what);
  std::abort();
}

/// Runs `f` and ignores a mantissa::Error. Any other exception ends the process.
template <class F>
void expect_only_errors(F f) noexcept {
  try {
    f();
  } catch (const Error& error) {
    require(error.what()[0] != '\0', "an error has a message");
  }
}

}  // namespace mantissa::fuzz
