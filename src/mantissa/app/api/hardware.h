// Hardware selection.
#pragma once

#include <string>

namespace mantissa::api {

/// The part of this machine that a computation uses. It changes no bit of any result.
struct Hardware {
  int threads = 0;             // 0: all cores
  std::string simd = {};       // "avx2", "avx512", "neon"; empty: the widest that the processor supports
  std::string device = "cpu";  // the only device
};

}  // namespace mantissa::api
