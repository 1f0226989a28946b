// Products of one row with the weights of a model, as in the generation of one stream: bytes of weights per
// second, where the weights lie in memory and where they lie in the caches, next to a plain reading of the
// same bytes.  bench_thin [THREADS]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "bench.h"
#include "mantissa/kernels/gemm.h"
#include "mantissa/kernels/peak.h"

namespace {

using namespace mantissa;  // NOLINT: a program, not a header
using Clock = std::chrono::steady_clock;

struct Shape {
  std::int64_t outputs, inputs;
};
/// The products of a layer, and the number of layers that no cache holds.
struct Model {
  std::string_view name;
  int layers;
  std::vector<Shape> products;
};
const Model kModels[] = {
    {"SmolLM2-135M",
     60,
     {{576, 576}, {192, 576}, {192, 576}, {576, 576}, {1536, 576}, {1536, 576}, {576, 1536}}},
    {"Llama 3.2 1B",
     3,
     {{2048, 2048}, {512, 2048}, {512, 2048}, {2048, 2048}, {8192, 2048}, {8192, 2048}, {2048, 8192}}},
};

/// A format of weights, and the order of the sums of its products.
struct Kind {
  std::string_view name;
  Scalar type;
  SumOrder order;
  std::optional<QuantFormat> quants = {};
  bool interleaved = false;

  std::size_t bytes(const Shape& s) const {
    const auto count = static_cast<std::size_t>(s.outputs * s.inputs);
    return quants ? quant_bytes(*quants, count) : count * bytes_of(type);
  }
};
constexpr Kind kKinds[] = {{"f32", Scalar::f32, SumOrder::chain},
                           {"bf16", Scalar::bf16, SumOrder::tile},
                           {"f32 interleaved", Scalar::f32, SumOrder::chain, {}, true},
                           {"bf16 interleaved", Scalar::bf16, SumOrder::tile, {}, true},
                           {"f16", Scalar::f16, SumOrder::chain},
                           {"q8_0", Scalar::f32, SumOrder::chain, QuantFormat::q8_0},
                           {"q4_0", Scalar::f32, SumOrder::chain, QuantFormat::q4_0}};

/// Multiplies a row by the weights of `layers` layers, which lie one after the other in `memory`.
void multiply(const kernels::Context& ctx, const Kind& kind, const Model& model, int layers,
              const std::byte* memory, const Storage& x, Storage& y) {
  for (int layer = 0; layer < layers; ++layer) {
    for (const Shape& s : model.products) {
      kernels::Gemm g;
      g.m = 1;
      g.n = s.outputs;
      g.k = s.inputs;
      g.a = {{x.data(), Scalar::f32, s.inputs}, kind.type, false};
      g.b = {{memory, kind.type, s.inputs}, kind.type, true};
      g.b.quants = kind.quants;
      if (kind.interleaved) g.b.interleaved = memory;
      g.c = {y.data(), Scalar::f32, s.outputs};
      g.accumulator.order = kind.order;
      kernels::gemm(ctx, g);
      memory += kind.bytes(s);
    }
  }
}

/// Returns the bytes per second of the best of several runs, after one that is not measured.
double speed(const kernels::Context& ctx, const Kind& kind, const Model& model, int layers, int repeats) {
  std::size_t bytes = 0;
  for (const Shape& s : model.products) bytes += kind.bytes(s);
  bytes *= static_cast<std::size_t>(layers);
  Storage weights(bytes), x(8192 * 4), y(8192 * 4);
  std::fill_n(weights.data(), bytes, std::byte{1});  // its own pages, not the shared one of zeros
  double best = 0;
  for (int round = 0; round < 8; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < repeats; ++i) multiply(ctx, kind, model, layers, weights.data(), x, y);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (round > 0) best = std::max(best, static_cast<double>(bytes) * repeats / seconds);
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  kernels::Context ctx = bench::context(argc, argv);
  const Storage workspace(kernels::gemm_workspace(ctx, 1, 8192, 8192, Scalar::f32));
  ctx.workspace = const_cast<std::byte*>(workspace.data());
  ctx.workspace_bytes = workspace.size();
  fmt::print("{}, {} threads, GB/s; plain reading of memory: {:.1f}\n", kernels::name(ctx.simd), ctx.threads,
             1e-9 * kernels::measure_read_bandwidth(ctx));
  for (const Model& model : kModels) {
    fmt::print("{:16}{:>12}{:>12}\n", model.name, "memory", "caches");
    for (const Kind& kind : kKinds) {
      const double memory = speed(ctx, kind, model, model.layers, 1);
      // A layer of the second model is larger than most caches.
      const double caches = model.layers > 10 ? speed(ctx, kind, model, 1, 60) : 0;
      fmt::print("{:16}{:>12.1f}{:>12.1f}\n", kind.name, 1e-9 * memory, 1e-9 * caches);
    }
  }
}
