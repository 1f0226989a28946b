// Matrix products as a share of the measured peaks of the machine's units: squares, the shapes of a training
// step, and generation, next to OpenBLAS and oneDNN if they are installed. bench_gemm [THREADS [NAME]]: NAME
// selects the products whose names contain it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include "bench.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/kernels/gemm.h"
#include "mantissa/kernels/peak.h"
#include "peer_gemm.h"

namespace {

using mantissa::Row;
using mantissa::Scalar;
using mantissa::Storage;
namespace kernels = mantissa::kernels;
using mantissa::bench::median;

struct Work {
  std::string name;
  std::int64_t m, n, k;
  bool a_transposed, b_transposed;
  std::int64_t row = 0;  // length of the rows of k; 0: one row, not accumulated
};

const std::vector<Work> kWorks = {
    {"square 512", 512, 512, 512, false, false},
    {"square 1024", 1024, 1024, 1024, false, false},
    {"square 2048", 2048, 2048, 2048, false, true},
    {"5M, y = x Wt, q k v", 2048, 256, 256, false, true},
    {"5M, y = x Wt, up", 2048, 688, 256, false, true},
    {"5M, dx = dy W, up", 2048, 256, 688, false, false},
    {"5M, dW += dyt x, up", 688, 256, 2048, true, false, 256},
    {"the same in one row", 688, 256, 2048, true, false, 2048},
    {"24M, up", 2048, 1376, 512, false, true},
    {"24M, down", 2048, 512, 1376, false, true},
    {"24M, dW, up", 1376, 512, 2048, true, false, 256},
    {"the same in one row", 1376, 512, 2048, true, false, 2048},
    {"124M, up", 1024, 2048, 768, false, true},
    {"124M, down", 1024, 768, 2048, false, true},
    {"124M, dx, up", 1024, 768, 2048, false, false},
    {"124M, dW, up", 2048, 768, 1024, true, false, 256},
    {"124M, up, 4 x 64", 256, 2048, 768, false, true},
    {"124M, down, 4 x 64", 256, 768, 2048, false, true},
    {"124M, dW, up, 4 x 64", 2048, 768, 256, true, false, 64},
    {"124M, logits of a chunk", 512, 1024, 768, false, true},
    {"generate, 1 stream", 1, 2048, 768, false, true},
    {"generate, 16 streams", 16, 2048, 768, false, true},
};

/// A column of the table: a storage format, which is also that of the factors, and how products are summed.
struct Variant {
  std::string name;
  Scalar type;
  mantissa::SumOrder order = mantissa::SumOrder::chain;
  kernels::Simd simd;
};

/// Returns the columns of the table of `simd`: f32 first, then the other formats in the order of sums that
/// plans choose for them, and bf16 in chain order. Tile order by fused multiply-adds has a column of its own
/// if `simd` has another instruction for it.
std::vector<Variant> variants_of(kernels::Simd simd) {
  using enum Scalar;
  using enum mantissa::SumOrder;
  using enum kernels::Simd;
  std::vector<Variant> all = {{"f32", f32, chain, simd}, {"bf16/f32", bf16, tile, simd}};
  if (simd == avx512_bf16 || simd == amx) all.push_back({"by FMA", bf16, tile, avx512});
  all.push_back({"chain", bf16, chain, simd});
  all.push_back({"f16", f16, chain, simd});
  all.push_back({"e4m3", e4m3, tile, simd});
  all.push_back({"f64", f64, chain, simd});
  return all;
}

/// Matrices of `work` in one storage format, with values in [-1, 1).
struct Matrices {
  Storage a, b, c, workspace;
  std::vector<Row> rows;
  kernels::Gemm g;
  kernels::Context ctx;

  Matrices(const Work& w, const Variant& v, const kernels::Context& context) : ctx(context) {
    ctx.simd = v.simd;
    g.accumulator.order = v.order;
    const Scalar type = v.type;
    const Scalar sum = type == Scalar::f64 ? Scalar::f64 : Scalar::f32;
    const auto random = [&](std::int64_t count) {
      std::mt19937 engine(1);
      std::uniform_real_distribution<float> uniform(-1, 1);
      std::vector<float> values(static_cast<std::size_t>(count));
      for (float& v : values) v = uniform(engine);
      Storage storage(values.size() * mantissa::bytes_of(type));
      mantissa::store_row(values.data(), values.size(), storage.data(), type, 0);
      return storage;
    };
    a = random(w.m * w.k);
    b = random(w.k * w.n);
    c = Storage(static_cast<std::size_t>(w.m * w.n) * mantissa::bytes_of(sum));
    for (std::int64_t begin = 0; w.row > 0 && begin < w.k; begin += w.row) rows.push_back({begin, w.row});
    g.m = w.m;
    g.n = w.n;
    g.k = w.k;
    g.a = {{a.data(), type, w.a_transposed ? w.m : w.k}, type, w.a_transposed};
    g.b = {{b.data(), type, w.b_transposed ? w.k : w.n}, type, w.b_transposed};
    g.c = {c.data(), sum, w.n};
    g.rows = rows;
    g.accumulate = w.row > 0;
    workspace = Storage(kernels::gemm_workspace(ctx, w.m, w.n, w.k, sum));
    ctx.workspace = workspace.data();
    ctx.workspace_bytes = workspace.size();
  }

  double seconds() const {
    const auto start = std::chrono::steady_clock::now();
    kernels::gemm(ctx, g);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  /// Times the same product in another library, with f32 operands.
  double seconds(const mantissa::bench::Peer& peer) const {
    const auto floats = [](const Storage& s) { return reinterpret_cast<float*>(s.data()); };
    const auto start = std::chrono::steady_clock::now();
    peer.product({g.m, g.n, g.k, g.a.transposed, g.b.transposed, floats(a), g.a.matrix.ld, floats(b),
                  g.b.matrix.ld, floats(c), g.c.ld, g.accumulate});
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
};

/// The peaks, in registers, of fused multiply-adds and of the unit that multiplies bf16 in tile order.
struct Peaks {
  double f32 = 0, bf16 = 0;
  const kernels::Unit* unit = nullptr;

  void measure(const kernels::Context& ctx) {
    const mantissa::Accumulator sums(Scalar::f32, 0, mantissa::SumOrder::tile);
    unit = &kernels::unit_of(ctx.simd, {Scalar::f32, Scalar::bf16, Scalar::bf16, sums});
    f32 = std::max(f32, kernels::measure_peak(ctx, kernels::UnitId::fma));
    bf16 = std::max(bf16, kernels::measure_peak(ctx, unit->id));
  }
};

/// Prints one line: flop/s of every variant, measured alternately so that noise affects all of them alike.
/// f32, bf16 and the peaks are the fastest runs, so their ratios do not include other load on the machine.
void measure(const Work& w, const kernels::Context& ctx, const std::vector<Variant>& variants, Peaks& peaks) {
  peaks.measure(ctx);
  std::vector<Matrices> matrices;
  for (const Variant& v : variants) matrices.emplace_back(w, v, ctx);
  for (const Matrices& m : matrices) m.seconds();
  std::vector<std::vector<double>> seconds(variants.size());
  const std::vector<mantissa::bench::Peer> others = mantissa::bench::peers(ctx.threads);
  std::vector<std::vector<double>> peer_seconds(others.size());
  const double flops = 2.0 * static_cast<double>(w.m * w.n * w.k);
  const int rounds = std::clamp(static_cast<int>(4e10 / flops), 7, 2000);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < variants.size(); ++i) seconds[i].push_back(matrices[i].seconds());
    for (std::size_t i = 0; i < others.size(); ++i) peer_seconds[i].push_back(matrices[0].seconds(others[i]));
  }
  fmt::print("{:24} {:5} × {:4} × {:4}", w.name, w.m, w.n, w.k);
  // bf16 is the second variant. It is a share of the peak of the unit that computes it.
  for (const auto& [variant, peak] : {std::pair{0, peaks.f32}, std::pair{1, peaks.bf16}}) {
    const std::vector<double>& s = seconds[static_cast<std::size_t>(variant)];
    const double fastest = flops / *std::min_element(s.begin(), s.end());
    fmt::print("{:9.1f}{:6.0f} %", fastest / 1e9, 100 * fastest / peak);
  }
  for (std::size_t i = 1; i < variants.size(); ++i)
    fmt::print("{:9.2f}", median(seconds[0]) / median(seconds[i]));
  for (const std::vector<double>& s : peer_seconds) fmt::print("{:10.2f}", median(seconds[0]) / median(s));
  fmt::print("\n");
}

}  // namespace

int main(int argc, char** argv) {
  kernels::Context ctx = mantissa::bench::context(argc, argv);
  const std::string name = argc > 2 ? argv[2] : "";
  const auto is_chosen = [&](const Work& w) { return w.name.find(name) != std::string::npos; };
  if (std::none_of(kWorks.begin(), kWorks.end(), is_chosen)) {
    fmt::print(stderr, "bench_gemm: no product has a name with \"{}\"; without a name, all are measured\n",
               name);
    return 2;
  }
  for (const kernels::Simd simd : {kernels::best_simd(), kernels::Simd::avx2}) {
    ctx.simd = simd;
    Peaks peaks;
    fmt::print("{}, {} threads\n", kernels::name(simd), ctx.threads);
    const std::vector<Variant> variants = variants_of(simd);
    fmt::print("{:24} {:>19}{:>9}{:>8}{:>9}{:>8}", "product", "m × n × k", "f32", "of peak", "bf16",
               "of peak");
    for (std::size_t i = 1; i < variants.size(); ++i) fmt::print("{:>9}", variants[i].name);
    for (const mantissa::bench::Peer& peer : mantissa::bench::peers(ctx.threads))
      fmt::print("{:>10}", peer.name);
    fmt::print("\n");
    for (const Work& w : kWorks) {
      if (is_chosen(w)) measure(w, ctx, variants, peaks);
    }
    fmt::print("peaks: FMA {:.0f} GFLOP/s in f32, {} {:.0f} GFLOP/s in bf16\n\n", peaks.f32 / 1e9,
               peaks.unit->name, peaks.bf16 / 1e9);
    if (simd == kernels::Simd::avx2 || kernels::best_simd() == kernels::Simd::neon) break;
  }
  fmt::print(
      "f32 and bf16 are in GFLOP/s, with their shares of the peaks of their units. The other columns are "
      "speeds relative to f32, other libraries in f32. bf16 and e4m3 are in tile order: by the set's fastest "
      "instruction, and \"by FMA\"; \"chain\" is bf16 in chain order.\n");
}
