// Attention, forward and backward, as a share of the machine's measured FMA peak. Only required flops count:
// those of the pairs within the causal mask and the window, with two products forward and five backward. Peak
// and kernels are measured alternately; the tables show medians.
#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "bench.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/attention.h"
#include "mantissa/kernels/peak.h"

namespace {

using namespace mantissa;           // NOLINT(google-build-using-namespace): a program, not a header
using namespace mantissa::kernels;  // NOLINT(google-build-using-namespace)

struct Work {
  Scalar format;
  std::int64_t rows, length, heads, kv_heads, head_dim;
  std::int64_t window = 0;
  double soft_cap = 0;
  SumOrder order = SumOrder::chain;

  std::int64_t tokens() const { return rows * length; }
  double pairs() const {
    const std::int64_t seen = window == 0 ? length : std::min(length, window);
    return static_cast<double>(rows * heads * (length * seen - seen * (seen - 1) / 2));
  }
};

struct Tensor {
  Storage storage;
  Scalar type;
  std::int64_t columns;

  Tensor(Scalar format, std::int64_t rows, std::int64_t width)
      : storage(static_cast<std::size_t>(rows * width) * bytes_of(format)), type(format), columns(width) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    std::vector<float> values(static_cast<std::size_t>(rows * width));
    for (float& x : values) x = normal(random);
    store_row(values.data(), values.size(), storage.data(), type, 0);
  }
  Matrix view() const { return {storage.data(), type, columns}; }
};

/// A table entry for a setting; a dash for 0, which disables it.
std::string or_none(double setting) {
  return setting == 0 ? "-" : fmt::format("{}", setting);
}

void measure(Context ctx, const Work& w) {
  const AttentionShape shape{w.heads,  w.kv_heads, w.head_dim, 1 / std::sqrt(static_cast<double>(w.head_dim)),
                             w.window, w.soft_cap};
  std::vector<Segment> segments;
  for (std::int64_t i = 0; i < w.rows; ++i) segments.push_back({i * w.length, w.length, 0, 0});
  const Extent extent{w.tokens(), {}, segments, 1};
  const std::int64_t q_width = w.heads * w.head_dim, kv_width = w.kv_heads * w.head_dim;
  const Tensor q(w.format, w.tokens(), q_width), k(w.format, w.tokens(), kv_width),
      v(w.format, w.tokens(), kv_width), out(w.format, w.tokens(), q_width),
      lse(Scalar::f32, w.tokens(), w.heads), dout(w.format, w.tokens(), q_width),
      dq(w.format, w.tokens(), q_width), dk(w.format, w.tokens(), kv_width),
      dv(w.format, w.tokens(), kv_width);
  const Storage scratch(
      std::max(attention_workspace(ctx, shape, w.tokens(), w.length, Scalar::f32),
               attention_backward_workspace(ctx, shape, w.tokens(), w.length, Scalar::f32)));
  ctx.workspace = scratch.data();
  ctx.workspace_bytes = scratch.size();
  const Attention forward{shape, q.view(), k.view(), v.view(), out.view(), lse.view(), w.format, w.order, {}};
  const AttentionBackward backward{shape,       q.view(),  k.view(),  v.view(),  out.view(), lse.view(),
                                   dout.view(), dq.view(), dk.view(), dv.view(), w.format,   w.order};

  attention(ctx, extent, forward);
  attention_backward(ctx, extent, backward);
  const double once = bench::seconds([&] { attention(ctx, extent, forward); });
  const int repeats = std::clamp(static_cast<int>(0.01 / once), 1, 1000);
  std::vector<double> peaks, forwards, backwards;
  for (int run = 0; run < 11; ++run) {
    peaks.push_back(measure_fma_peak(ctx, Scalar::f32));
    forwards.push_back(bench::seconds([&] {
                         for (int i = 0; i < repeats; ++i) attention(ctx, extent, forward);
                       }) /
                       repeats);
    backwards.push_back(bench::seconds([&] { attention_backward(ctx, extent, backward); }));
  }
  const double flops = 4 * static_cast<double>(w.head_dim) * w.pairs();
  const double peak = bench::median(peaks), forward_rate = flops / bench::median(forwards),
               backward_rate = 2.5 * flops / bench::median(backwards);
  fmt::print(
      "{:6} {:5} {:3} x {:5} {:3}/{:<3} {:4} {:6} {:3} {:8} {:8.1f} {:8.1f} {:5.0f} % {:8.1f} {:5.0f} %\n",
      name(w.format), w.order == SumOrder::tile ? "tile" : "chain", w.rows, w.length, w.heads, w.kv_heads,
      w.head_dim, or_none(static_cast<double>(w.window)), or_none(w.soft_cap), name(ctx.simd), peak / 1e9,
      forward_rate / 1e9, 100 * forward_rate / peak, backward_rate / 1e9, 100 * backward_rate / peak);
}

}  // namespace

int main() {
  const Context ctx = bench::context();
  fmt::print(
      "{} threads; GFLOP/s\n"
      "format order rows x length heads  dim window cap simd         peak  forward share  backward share\n",
      ctx.threads);
  for (const auto& [format, order] : {std::pair{Scalar::f32, SumOrder::chain},
                                      {Scalar::bf16, SumOrder::chain},
                                      {Scalar::bf16, SumOrder::tile}}) {
    for (Work w : {Work{format, 8, 64, 6, 6, 64}, Work{format, 8, 256, 6, 6, 64},
                   Work{format, 8, 256, 8, 2, 64}, Work{format, 2, 1024, 6, 6, 64},
                   Work{format, 1, 4096, 4, 2, 64}, Work{format, 1, 4096, 4, 2, 64, 512},
                   Work{format, 1, 4096, 4, 2, 64, 512, 50}, Work{format, 4, 512, 4, 4, 128}}) {
      w.order = order;
      measure(ctx, w);
    }
  }
  for (const std::int64_t length : {256, 1024})
    measure({Simd::avx2, ctx.threads, nullptr, 0}, {Scalar::f32, 4, length, 6, 6, 64});
}
