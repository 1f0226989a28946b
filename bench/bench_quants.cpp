// Products with weights in quantized blocks next to the same weights in bf16: y = x·Wᵀ and dx = dy·W, with
// factors in bf16. bench_quants [THREADS]
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "bench.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/quantize_rows.h"
#include "mantissa/kernels/gemm.h"

namespace {

using mantissa::QuantFormat;
using mantissa::Scalar;
using mantissa::Storage;
namespace kernels = mantissa::kernels;

constexpr std::int64_t kRows = 4096, kWidth = 4096;

std::vector<float> normal(std::int64_t count) {
  std::mt19937 engine(1);
  std::normal_distribution<float> distribution;
  std::vector<float> values(static_cast<std::size_t>(count));
  std::ranges::generate(values, [&] { return distribution(engine); });
  return values;
}

Storage in_bf16(const std::vector<float>& values) {
  Storage storage(values.size() * 2);
  mantissa::store_row(values.data(), values.size(), storage.data(), Scalar::bf16, 0);
  return storage;
}

/// A weight [kRows, kWidth] in a quantized format, or in bf16.
struct Weight {
  std::string_view name = "bf16";
  std::optional<QuantFormat> format;
  Storage memory;

  Weight(const std::vector<float>& values, std::optional<QuantFormat> f) : format(f) {
    if (!f) {
      memory = in_bf16(values);
      return;
    }
    name = mantissa::traits(*f).name;
    memory = Storage(mantissa::quant_bytes(*f, kRows, kWidth));
    auto* const data = reinterpret_cast<std::uint8_t*>(memory.data());
    if (!mantissa::traits(*f).apart) return;  // blocks of zeros: the time does not depend on values
    std::vector<float> scales(mantissa::quant_scales(*f, kRows, kWidth));
    mantissa::quantize_rows({*f, kRows, kWidth, data}, 0, kRows, values.data(), scales.data());
    if (*f == QuantFormat::nf4_double) mantissa::quantize_scales({*f, kRows, kWidth, data}, scales);
  }
  kernels::GemmOperand operand(bool transposed) const {
    kernels::GemmOperand o{{memory.data(), Scalar::bf16, kWidth}, Scalar::bf16, transposed};
    if (!format) return o;
    o.matrix.type = Scalar::f32;
    o.quants = format;
    o.scales = mantissa::quant_rows(*format, memory.data(), kRows, kWidth).scales;
    return o;
  }
};

double seconds(const kernels::Context& ctx, const kernels::Gemm& g) {
  const auto start = std::chrono::steady_clock::now();
  kernels::gemm(ctx, g);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Prints a line: the time of the product in bf16, and the speeds of the other weights relative to it. Runs
/// alternate, so noise affects all of them alike.
void measure(const kernels::Context& context, const std::vector<Weight>& weights, std::int64_t tokens,
             bool backward) {
  kernels::Gemm g;
  g.m = tokens;
  g.n = backward ? kWidth : kRows;
  g.k = backward ? kRows : kWidth;
  const Storage a = in_bf16(normal(g.m * g.k));
  const Storage c(static_cast<std::size_t>(g.m * g.n) * sizeof(float));
  const Storage workspace(kernels::gemm_workspace(context, g.m, g.n, g.k, Scalar::f32));
  kernels::Context ctx = context;
  ctx.workspace = workspace.data();
  ctx.workspace_bytes = workspace.size();
  g.a = {{a.data(), Scalar::bf16, g.k}, Scalar::bf16, false};
  g.c = {const_cast<std::byte*>(c.data()), Scalar::f32, g.n};
  g.accumulator.order = mantissa::SumOrder::tile;
  std::vector<std::vector<double>> times(weights.size());
  const int rounds = tokens > 100 ? 7 : 40;
  for (int round = -1; round < rounds; ++round) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      g.b = weights[i].operand(!backward);
      const double time = seconds(ctx, g);
      if (round >= 0) times[i].push_back(time);
    }
  }
  fmt::print("{:9} {:>6}", backward ? "dx = dy W" : "y = x Wt", tokens);
  for (const std::vector<double>& t : times) {
    if (&t == times.data()) {
      fmt::print("{:>10.2f}", 1e3 * mantissa::bench::median(t));
    } else {
      fmt::print("{:>11.2f}", mantissa::bench::median(times[0]) / mantissa::bench::median(t));
    }
  }
  fmt::print("\n");
}

}  // namespace

int main(int argc, char** argv) {
  kernels::Context ctx = mantissa::bench::context(argc, argv);
  const std::vector<float> values = normal(kRows * kWidth);
  std::vector<Weight> weights;
  weights.emplace_back(values, std::nullopt);
  for (const QuantFormat f :
       {QuantFormat::q8_0, QuantFormat::q4_0, QuantFormat::int8, QuantFormat::nf4, QuantFormat::nf4_double})
    weights.emplace_back(values, f);
  for (const kernels::Simd simd : {kernels::best_simd(), kernels::Simd::avx2}) {
    ctx.simd = simd;
    fmt::print("{}, {} threads\n{:9} {:>6}{:>10}", kernels::name(simd), ctx.threads, "product", "tokens",
               "bf16, ms");
    for (std::size_t i = 1; i < weights.size(); ++i) fmt::print("{:>11}", weights[i].name);
    fmt::print("\n");
    for (const bool backward : {false, true}) {
      for (const std::int64_t tokens : {1, 16, 512}) measure(ctx, weights, tokens, backward);
    }
    fmt::print("\n");
    if (simd == kernels::Simd::avx2 || kernels::best_simd() == kernels::Simd::neon) break;
  }
  fmt::print("W is {} × {}. The columns after bf16 are speeds relative to it.\n", kRows, kWidth);
}
