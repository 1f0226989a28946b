// Where a computation runs.
#pragma once

#include <string>

namespace mantissa::api {

/// Where a run executes. Neither changes a bit of any result.
struct Hardware {
  int threads = 0;   // 0: all cores
  std::string simd;  // "avx2", "avx512", "neon"; empty: the best there is
  std::string device = "cpu";
};

}  // namespace mantissa::api
