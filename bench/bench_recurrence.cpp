// The recurrence of RWKV-7, forward and backward, one thread, as a share of the machine's measured FMA peak.
// Flops of a state's element and a token: 9 forward, and 11 backward, with the 8 of the states that the
// backward pass computes again 19; it computes them twice. Peak and kernels are measured alternately; the
// table shows medians.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <vector>

#include "bench.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/peak.h"
#include "mantissa/kernels/recurrence.h"

namespace {

using namespace mantissa;           // NOLINT(google-build-using-namespace): a program, not a header
using namespace mantissa::kernels;  // NOLINT(google-build-using-namespace)

constexpr std::int64_t kHeads = 8, kHeadDim = 64, kWidth = kHeads * kHeadDim;
constexpr double kForwardFlops = 9, kBackwardFlops = 19, kRecomputedFlops = 2 * 7;

struct Operand {
  Storage storage;
  Scalar type;

  /// Normal values of deviation `scale` around `mean`.
  Operand(std::int64_t tokens, Scalar format, float scale = 1, float mean = 0)
      : storage(static_cast<std::size_t>(tokens * kWidth) * bytes_of(format)), type(format) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(mean, scale);
    std::vector<float> values(static_cast<std::size_t>(tokens * kWidth));
    for (float& x : values) x = normal(random);
    store_row(values.data(), values.size(), storage.data(), type, 0);
  }
  Matrix view() const { return {storage.data(), type, kWidth}; }
};

void measure(Context ctx, Scalar format, std::int64_t tokens) {
  const std::vector<Segment> segments = {{0, tokens, 0, 0}};
  const std::vector<Row> rows = {{0, tokens}};
  const Extent extent{tokens, rows, segments, 1};
  const Operand r(tokens, format), k(tokens, format), v(tokens, format), dy(tokens, format),
      y(tokens, format), alpha(tokens, format, 0.1F), beta(tokens, format, 0.1F),
      decay(tokens, Scalar::f32, 0.05F, -0.3F);
  const Operand dr(tokens, format), dk(tokens, format), dv(tokens, format), dalpha(tokens, format),
      dbeta(tokens, format), ddecay(tokens, Scalar::f32);

  Recurrence forward;
  forward.shape = {kHeads, kHeadDim, kHeadDim};
  forward.r = r.view(), forward.k = k.view(), forward.v = v.view();
  forward.alpha = alpha.view(), forward.beta = beta.view(), forward.decay = decay.view();
  forward.y = y.view();
  RecurrenceBackward backward;
  backward.shape = forward.shape;
  backward.r = forward.r, backward.k = forward.k, backward.v = forward.v;
  backward.alpha = forward.alpha, backward.beta = forward.beta, backward.decay = forward.decay;
  backward.dy = dy.view();
  backward.dr = dr.view(), backward.dk = dk.view(), backward.dv = dv.view();
  backward.dalpha = dalpha.view(), backward.dbeta = dbeta.view(), backward.ddecay = ddecay.view();

  const Storage scratch(std::max(recurrence_workspace(ctx, forward.shape, Scalar::f32),
                                 recurrence_backward_workspace(ctx, forward.shape, tokens, Scalar::f32)));
  ctx.workspace = scratch.data();
  ctx.workspace_bytes = scratch.size();

  std::vector<double> peaks, forwards, backwards;
  for (int run = 0; run < 21; ++run) {
    peaks.push_back(measure_fma_peak(ctx, Scalar::f32));
    forwards.push_back(bench::seconds([&] { recurrence(ctx, extent, forward); }));
    backwards.push_back(bench::seconds([&] { recurrence_backward(ctx, extent, backward); }));
  }
  const double elements = static_cast<double>(tokens * kHeads * kHeadDim * kHeadDim);
  const double peak = bench::median(peaks), there = bench::median(forwards), back = bench::median(backwards);
  const auto share = [&](double flops, double time) { return 100 * flops * elements / time / peak; };
  fmt::print("{:6} {:6} {:8.1f} {:8.0f} % {:8.0f} % {:10.0f} % {:10.0f} %\n", name(format), tokens,
             peak / 1e9, share(kForwardFlops, there), share(kBackwardFlops, back),
             share(kBackwardFlops + kRecomputedFlops, back),
             share(kForwardFlops + kBackwardFlops + kRecomputedFlops, there + back));
}

}  // namespace

int main() {
  const Context ctx = bench::context(1);
  fmt::print(
      "{} heads of {}, {}; shares of the peak\n"
      "format tokens  GFLOP/s  forward  backward  recomputing  both, recomputing\n",
      kHeads, kHeadDim, name(ctx.simd));
  for (const Scalar format : {Scalar::f32, Scalar::bf16})
    for (const std::int64_t tokens : {256, 4096}) measure(ctx, format, tokens);
}
