// What this machine is, what each format costs on it, and which preset it should use.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "mantissa/api/internal.h"
#include "mantissa/kernels/gemm.h"
#include "mantissa/kernels/peak.h"
#include "mantissa/runtime/process.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::api {
namespace {

/// Flop/s of a square product with operands stored in `format`, the best of a few runs.
double product_speed(const kernels::Context& ctx, Scalar format) {
  constexpr std::int64_t kSize = 768;
  const Scalar arithmetic = format == Scalar::f64 ? Scalar::f64 : Scalar::f32;
  const Storage a(static_cast<std::size_t>(kSize * kSize) * bytes_of(format));
  const Storage b(static_cast<std::size_t>(kSize * kSize) * bytes_of(format));
  const Storage c(static_cast<std::size_t>(kSize * kSize) * bytes_of(arithmetic));
  const Storage work(kernels::gemm_workspace(ctx, kSize, kSize, kSize, arithmetic));
  kernels::Context local = ctx;
  local.workspace = work.data();
  local.workspace_bytes = work.size();
  kernels::Gemm g;
  g.m = g.n = g.k = kSize;
  g.a = {{a.data(), format, kSize}, format, false};
  g.b = {{b.data(), format, kSize}, format, true};
  g.c = {c.data(), arithmetic, kSize};
  double best = 0;
  for (int run = 0; run < 4; ++run) {
    const auto start = std::chrono::steady_clock::now();
    kernels::gemm(local, g);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, 2.0 * static_cast<double>(kSize * kSize * kSize) / seconds);
  }
  return best;
}

}  // namespace

Doctor doctor(const Hardware& hardware) {
  const kernels::Context ctx = context_for(hardware);
  const double peak = kernels::measure_fma_peak(ctx, Scalar::f32);
  const double bandwidth = kernels::measure_bandwidth(ctx, std::size_t{384} << 20U);
  const std::size_t memory = runtime::machine_memory_bytes();
  Doctor d;
  d.text = fmt::format(
      "cores    {} ({} used)\nsimd     {}\nmemory   {}\npeak     {:.0f} GFLOP/s f32 (fused multiply-add, "
      "measured)\n"
      "stream   {:.1f} GB/s (measured)\ngpu      none used: this build runs on the cpu\nmpi      none used: "
      "one process\n\n"
      "format  how        product       of f32\n",
      std::thread::hardware_concurrency(), ctx.threads, kernels::name(ctx.simd),
      human_bytes(static_cast<double>(memory)), peak / 1e9, bandwidth / 1e9);
  nlohmann::json formats = nlohmann::json::array();
  const double f32 = product_speed(ctx, Scalar::f32);
  double bf16 = 0;
  for (const Scalar s :
       {Scalar::f64, Scalar::f32, Scalar::tf32, Scalar::bf16, Scalar::f16, Scalar::e5m2, Scalar::e4m3}) {
    const double speed = s == Scalar::f32 ? f32 : product_speed(ctx, s);
    if (s == Scalar::bf16) bf16 = speed;
    const char* how = s == Scalar::f64 || s == Scalar::f32 ? "native"
                      : s == Scalar::tf32                  ? "simulated"
                                                           : "converted";
    d.text += fmt::format("{:<8}{:<11}{:>5.0f} GFLOP/s {:>6.2f} ×\n", name(s), how, speed / 1e9, speed / f32);
    formats.push_back(
        {{"format", name(s)}, {"how", how}, {"flops_per_second", speed}, {"relative_to_f32", speed / f32}});
  }
  // Half the bytes of activations and weights at nearly the speed of f32 is worth it; much slower is not.
  constexpr double kWorthIt = 0.9;
  const bool mixed = bf16 >= kWorthIt * f32;
  const char* preset = mixed ? "bf16-mixed" : "32-true";
  const std::string why =
      fmt::format("bf16 products run at {:.2f} × the f32 speed here{}", bf16 / f32,
                  mixed ? " and activations take half the memory" : ", so that mixing would cost time");
  d.text += fmt::format("\npreset   {}: {}\n", preset, why);
  d.json = nlohmann::json{
      {"cores", std::thread::hardware_concurrency()},
      {"threads", ctx.threads},
      {"simd", kernels::name(ctx.simd)},
      {"memory_bytes", memory},
      {"flops_per_second", peak},
      {"bytes_per_second", bandwidth},
      {"gpu", nullptr},
      {"mpi", nullptr},
      {"formats", formats},
      {"preset", preset},
      {"why",
       why}}.dump(2);
  return d;
}

}  // namespace mantissa::api
