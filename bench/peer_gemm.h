// Matrix products of other libraries that the build found, for comparison in bench_gemm.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace mantissa::bench {

/// C[m, n] = A·B, or C + A·B, in f32. Rows are `ld` apart; element (i, j) of a transposed operand is data[j *
/// ld + i].
struct PeerProduct {
  std::int64_t m, n, k;
  bool a_transposed, b_transposed;
  const float* a;
  std::int64_t lda;
  const float* b;
  std::int64_t ldb;
  float* c;
  std::int64_t ldc;
  bool accumulate;
};

struct Peer {
  std::string_view name;
  void (*product)(const PeerProduct&);
};

/// Returns the available libraries, limited to `threads` threads if they support it.
std::vector<Peer> peers(int threads);

}  // namespace mantissa::bench
