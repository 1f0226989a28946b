// Every kernel except products and attention (bench_gemm, bench_attention): its bandwidth next to the
// machine's triad bandwidth, which limits it. Sizes are those of a training step of the 24M model. Accepts
// Google Benchmark's options (--benchmark_filter=…).
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench.h"
#include "kernels/adamw.h"
#include "mantissa/kernels/expression.h"
#include "mantissa/kernels/gather.h"
#include "mantissa/kernels/norm.h"
#include "mantissa/kernels/peak.h"
#include "mantissa/kernels/rope.h"
#include "mantissa/kernels/update.h"

namespace {

using namespace mantissa;           // NOLINT(google-build-using-namespace): a program, not a header
using namespace mantissa::kernels;  // NOLINT(google-build-using-namespace)

constexpr std::int64_t kTokens = 2048, kLength = 256, kHidden = 512, kInner = 1376, kHeads = 8,
                       kVocabulary = 4096;
constexpr std::int64_t kWeights = std::int64_t{1} << 22;

/// Memory for [rows, width] of one format, all ones.
struct Tensor {
  Storage storage;
  Scalar type;
  std::int64_t width;

  Tensor(const Context& ctx, Scalar format, std::int64_t rows, std::int64_t columns)
      : storage(static_cast<std::size_t>(rows * columns) * bytes_of(format)), type(format), width(columns) {
    const std::vector<float> ones(static_cast<std::size_t>(rows * columns), 1.0F);
    cast(ctx, rows * columns, ones.data(), Scalar::f32, storage.data(), format);
  }
  operator Matrix() const { return {storage.data(), type, width}; }  // NOLINT(google-explicit-constructor)
  operator ConstMatrix() const {
    return {storage.data(), type, width};
  }  // NOLINT(google-explicit-constructor)
  std::byte* data() const { return storage.data(); }
};

struct Rows {
  std::vector<Row> rows;
  std::vector<Segment> segments;
  Extent extent;

  Rows() {
    for (std::int64_t t = 0; t < kTokens; t += kLength) {
      rows.push_back({t, kLength});
      segments.push_back({t, kLength, 0, t / kLength});
    }
    extent = {kTokens, rows, segments, 1};
  }
};

class Kernels {
 public:
  Kernels() : ctx_(bench::context()), bandwidth_(measure_bandwidth(ctx_, std::size_t{1} << 28)) {
    fmt::print("{} threads, {}, triad {:.1f} GB/s\n", ctx_.threads, name(ctx_.simd), bandwidth_ / 1e9);
  }

  void add_all() {
    for (const Scalar format : {Scalar::f32, Scalar::bf16}) {
      add_norm(format);
      add_pointwise(format);
      add_rows(format);
      add_update(format);
    }
  }

 private:
  /// Registers `work`, which reads and writes `bytes`.
  void add(const std::string& kernel, Scalar format, double bytes, std::function<void()> work) {
    const std::string title = fmt::format("{}/{}", kernel, name(format));
    benchmark::RegisterBenchmark(title.c_str(),
                                 [this, bytes, work = std::move(work)](benchmark::State& state) {
                                   for (auto _ : state) work();
                                   const double all = bytes * static_cast<double>(state.iterations());
                                   state.counters["bytes"] = benchmark::Counter(
                                       all, benchmark::Counter::kIsRate, benchmark::Counter::kIs1000);
                                   state.counters["of_triad"] =
                                       benchmark::Counter(all / bandwidth_, benchmark::Counter::kIsRate);
                                 })
        ->UseRealTime()
        ->Unit(benchmark::kMicrosecond);
  }

  static double size(std::int64_t elements, Scalar format) {
    return static_cast<double>(elements) * static_cast<double>(bytes_of(format));
  }
  std::shared_ptr<Tensor> tensor(Scalar format, std::int64_t rows, std::int64_t columns) const {
    return std::make_shared<Tensor>(ctx_, format, rows, columns);
  }

  void add_norm(Scalar f) {
    const auto x = tensor(Scalar::f32, kTokens, kHidden), gain = tensor(Scalar::f32, 1, kHidden),
               rstd = tensor(Scalar::f32, kTokens, 1), y = tensor(f, kTokens, kHidden),
               dx = tensor(Scalar::f32, kTokens, kHidden);
    const double wide = size(kTokens * kHidden, Scalar::f32), narrow = size(kTokens * kHidden, f);
    add("rmsnorm", f, wide + narrow, [=, this] {
      rmsnorm(ctx_, kTokens, {kHidden, 1e-5, *x, *gain, *y, *rstd});
    });
    add("rmsnorm_backward", f, 2 * wide + narrow, [=, this] {
      rmsnorm_backward(ctx_, kTokens, {kHidden, *x, *gain, *rstd, *y, {}, *dx});
    });
    add("rmsnorm_gain", f, wide + narrow, [=, this] {
      rmsnorm_gain(ctx_, rows_.extent, {kHidden, *x, *rstd, *y, *gain, false});
    });
  }

  void add_pointwise(Scalar f) {
    const auto gate = tensor(f, kTokens, kInner), up = tensor(f, kTokens, kInner),
               out = tensor(f, kTokens, kInner);
    ExpressionBuilder b;
    const auto x = b.load(0);
    b.store(b.mul(b.mul(x, b.sigmoid(x)), b.load(1)), 0);
    add("swiglu", f, 3 * size(kTokens * kInner, f), [=, this, program = b.build()] {
      const PointwiseInput in[] = {{gate->data(), f}, {up->data(), f}};
      const PointwiseOutput to[] = {{out->data(), f}};
      pointwise(ctx_, program, kTokens, kInner, in, to);
    });
  }

  void add_rows(Scalar f) {
    const auto x = tensor(f, kTokens, kHidden), y = tensor(f, kTokens, kHidden),
               cos = tensor(Scalar::f32, kLength, kHidden / kHeads / 2),
               sin = tensor(Scalar::f32, kLength, kHidden / kHeads / 2),
               table = tensor(Scalar::f32, kVocabulary, kHidden),
               dtable = tensor(Scalar::f32, kVocabulary, kHidden);
    const auto ids = std::make_shared<std::vector<std::int32_t>>();
    for (std::int64_t t = 0; t < kTokens; ++t)
      ids->push_back(static_cast<std::int32_t>(t * 977 % kVocabulary));
    const auto work = std::make_shared<Storage>(gather_workspace(ctx_, kTokens, kHidden));
    add("rope", f, 2 * size(kTokens * kHidden, f), [=, this] {
      rope(ctx_, rows_.extent, {kHeads, kHidden / kHeads, false, *x, *cos, *sin, *y});
    });
    add("gather", f, size(kTokens * kHidden, Scalar::f32) + size(kTokens * kHidden, f),
        [=, this] { gather(ctx_, kTokens, kHidden, *table, ids->data(), *y); });
    add("gather_backward", f, 2 * size(kTokens * kHidden, Scalar::f32) + size(kTokens * kHidden, f),
        [=, this] {
          Context ctx = ctx_;
          ctx.workspace = work->data();
          ctx.workspace_bytes = work->size();
          gather_backward(ctx, rows_.extent, {kVocabulary, kHidden, ids->data(), *x, *dtable, true});
        });
  }

  void add_update(Scalar f) {
    const auto master = tensor(Scalar::f32, 1, kWeights), gradient = tensor(Scalar::f32, 1, kWeights),
               m = tensor(Scalar::f32, 1, kWeights), v = tensor(Scalar::f32, 1, kWeights),
               copy = tensor(f, 1, kWeights);
    const double wide = size(kWeights, Scalar::f32), narrow = f == Scalar::f32 ? 0 : size(kWeights, f);
    add("adamw", f, 7 * wide + narrow, [=, this] {
      AdamW u;
      u.count = kWeights;
      u.master = master->data();
      u.gradient = gradient->data();
      u.first_moment = m->data();
      u.second_moment = v->data();
      u.lr = 1e-4;
      u.beta1 = 0.9;
      u.beta2 = 0.95;
      u.eps = 1e-8;
      if (f != Scalar::f32) {
        u.copy = copy->data();
        u.copy_type = f;
      }
      adamw(ctx_, u);
    });
    add("gradient_norm", f, size(kWeights, f), [=, this] { gradient_norm(ctx_, copy->data(), f, kWeights); });
    add("cast", f, wide + size(kWeights, f),
        [=, this] { cast(ctx_, kWeights, gradient->data(), Scalar::f32, copy->data(), f); });
  }

  Context ctx_;
  double bandwidth_;
  Rows rows_;
};

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  Kernels kernels;
  kernels.add_all();
  benchmark::RunSpecifiedBenchmarks();
}
