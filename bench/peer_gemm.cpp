#include "peer_gemm.h"

#ifdef MANTISSA_BENCH_OPENBLAS
#include <cblas.h>
#endif
#ifdef MANTISSA_BENCH_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

namespace mantissa::bench {
namespace {

#ifdef MANTISSA_BENCH_OPENBLAS
void openblas(const PeerProduct& p) {
  const auto size = [](std::int64_t n) { return static_cast<blasint>(n); };
  cblas_sgemm(CblasRowMajor, p.a_transposed ? CblasTrans : CblasNoTrans,
              p.b_transposed ? CblasTrans : CblasNoTrans, size(p.m), size(p.n), size(p.k), 1, p.a,
              size(p.lda), p.b, size(p.ldb), p.accumulate ? 1 : 0, p.c, size(p.ldc));
}
#endif

#ifdef MANTISSA_BENCH_ONEDNN
void onednn(const PeerProduct& p) {
  dnnl_sgemm(p.a_transposed ? 'T' : 'N', p.b_transposed ? 'T' : 'N', p.m, p.n, p.k, 1, p.a, p.lda, p.b, p.ldb,
             p.accumulate ? 1 : 0, p.c, p.ldc);
}
#endif

}  // namespace

std::vector<Peer> peers([[maybe_unused]] int threads) {
  std::vector<Peer> found;
#ifdef MANTISSA_BENCH_OPENBLAS
  openblas_set_num_threads(threads);
  found.push_back({"OpenBLAS", openblas});
#endif
#ifdef MANTISSA_BENCH_ONEDNN
  found.push_back({"oneDNN", onednn});
#endif
  return found;
}

}  // namespace mantissa::bench
