// What this machine is, what each format costs on it, and which preset it should use.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "mantissa/api/internal.h"
#include "mantissa/kernels/gemm.h"
#include "mantissa/kernels/peak.h"
#include "mantissa/kernels/processor.h"
#include "mantissa/kernels/update.h"
#include "mantissa/runtime/process.h"
#include "mantissa/runtime/surroundings.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::api {
namespace {

using nlohmann::json;

constexpr int kRounds = 12;
constexpr std::int64_t kSide = 768;                    // of the square product
constexpr std::int64_t kCast = std::int64_t{1} << 22;  // elements that are cast and updated

/// What a format costs, the fastest of kRounds runs each.
struct Cost {
  Scalar format = Scalar::f32;
  double product = 0;     // flop/s of a square product with both operands stored in the format
  double cast = 0;        // elements/s rounded to nearest from f32 to the format
  double stochastic = 0;  // elements/s of AdamW's sweep over weight and moments in it; 0: not trained so
};

template <class Work>
double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double product_seconds(const kernels::Context& ctx, Scalar format) {
  const Scalar arithmetic = format == Scalar::f64 ? Scalar::f64 : Scalar::f32;
  constexpr auto kElements = static_cast<std::size_t>(kSide * kSide);
  const Storage a(kElements * bytes_of(format)), b(kElements * bytes_of(format));
  const Storage c(kElements * bytes_of(arithmetic));
  const Storage work(kernels::gemm_workspace(ctx, kSide, kSide, kSide, arithmetic));
  kernels::Context local = ctx;
  local.workspace = work.data();
  local.workspace_bytes = work.size();
  kernels::Gemm g;
  g.m = g.n = g.k = kSide;
  g.a = {{a.data(), format, kSide}, format, false};
  g.b = {{b.data(), format, kSide}, format, true};
  g.c = {c.data(), arithmetic, kSide};
  kernels::gemm(local, g);  // touches the pages
  return seconds_of([&] { kernels::gemm(local, g); });
}

double cast_seconds(const kernels::Context& ctx, Scalar format, const Storage& from, const Storage& to) {
  return seconds_of([&] { kernels::cast(ctx, kCast, from.data(), Scalar::f32, to.data(), format); });
}

/// One sweep of AdamW with weights and moments in `format`, rounded stochastically.
double update_seconds(const kernels::Context& ctx, Scalar format, const Storage& memory) {
  const std::size_t part = memory.size() / 4;
  kernels::AdamW u;
  u.count = kCast;
  u.master = memory.data();
  u.gradient = memory.data() + part;
  u.first_moment = memory.data() + 2 * part;
  u.second_moment = memory.data() + 3 * part;
  u.master_type = u.gradient_type = u.moment_type = format;
  u.rounding = format == Scalar::f32 ? Rounding::nearest : Rounding::stochastic;
  u.beta1 = 0.9;
  u.beta2 = 0.95;
  u.eps = 1e-8;
  return seconds_of([&] { kernels::adamw(ctx, u); });
}

/// Round by round over all formats, so that what else the machine does falls on all alike.
std::vector<Cost> measure_costs(const kernels::Context& ctx) {
  std::vector<Cost> costs;
  for (const Scalar s :
       {Scalar::f64, Scalar::f32, Scalar::tf32, Scalar::bf16, Scalar::f16, Scalar::e5m2, Scalar::e4m3})
    costs.push_back({s, 0, 0, 0});
  const Storage from(static_cast<std::size_t>(kCast) * 4), to(static_cast<std::size_t>(kCast) * 8);
  const Storage trained(static_cast<std::size_t>(kCast) * 4 * 4);
  constexpr double kFlops = 2.0 * static_cast<double>(kSide * kSide * kSide);
  for (int round = 0; round < kRounds; ++round) {
    for (Cost& c : costs) {
      c.product = std::max(c.product, kFlops / product_seconds(ctx, c.format));
      c.cast = std::max(c.cast, static_cast<double>(kCast) / cast_seconds(ctx, c.format, from, to));
      if (c.format == Scalar::f32 || c.format == Scalar::bf16) {
        c.stochastic =
            std::max(c.stochastic, static_cast<double>(kCast) / update_seconds(ctx, c.format, trained));
      }
    }
  }
  return costs;
}

const Cost& cost_of(const std::vector<Cost>& costs, Scalar format) {
  return *std::find_if(costs.begin(), costs.end(), [&](const Cost& c) { return c.format == format; });
}

struct Choice {
  std::string preset, why;
};

/// Half the bytes of activations at nearly the speed of f32 is worth it; much slower is not. bf16 before f16:
/// it has f32's range, so that no loss scale is needed.
Choice choose_preset(const std::vector<Cost>& costs) {
  constexpr double kWorthIt = 0.9;
  const double f32 = cost_of(costs, Scalar::f32).product;
  const double bf16 = cost_of(costs, Scalar::bf16).product, f16 = cost_of(costs, Scalar::f16).product;
  const std::string speeds = fmt::format(
      "measured here, bf16 products run at {:.2f} and f16 products at {:.2f} "
      "times the f32 speed",
      bf16 / f32, f16 / f32);
  if (bf16 >= kWorthIt * f32)
    return {"bf16-mixed",
            speeds + "; activations take half the memory, weights stay f32, and bf16 needs no loss scale"};
  if (f16 >= kWorthIt * f32)
    return {"16-mixed", speeds + "; activations take half the memory, weights stay f32 under a loss scale"};
  return {"32-true", speeds + ", so that mixing would cost time"};
}

std::string format_table(const std::vector<Cost>& costs) {
  const double f32 = cost_of(costs, Scalar::f32).product;
  std::string text = fmt::format("{:<8}{:<11}{:>15}{:>9}{:>18}  {}\n", "format", "how", "product", "of f32",
                                 "cast from f32", "what happens");
  for (const Cost& c : costs) {
    const kernels::FormatSupport support = kernels::format_support(name(c.format));
    text +=
        fmt::format("{:<8}{:<11}{:>7.0f} GFLOP/s{:>7.2f} ×{:>10.2f} Gvalue/s  {}\n", name(c.format),
                    kernels::name(support.how), c.product / 1e9, c.product / f32, c.cast / 1e9, support.why);
  }
  return text;
}

json format_json(const std::vector<Cost>& costs) {
  const double f32 = cost_of(costs, Scalar::f32).product;
  json formats = json::array();
  for (const Cost& c : costs) {
    const kernels::FormatSupport support = kernels::format_support(name(c.format));
    json row = {
        {"format", name(c.format)},      {"how", kernels::name(support.how)},  {"why", support.why},
        {"flops_per_second", c.product}, {"relative_to_f32", c.product / f32}, {"casts_per_second", c.cast}};
    formats.push_back(std::move(row));
  }
  return formats;
}

/// The extensions that are here, each with whether it is used and why.
std::string feature_table(const std::vector<kernels::ProcessorFeature>& features) {
  std::string text;
  for (const kernels::ProcessorFeature& f : features) {
    if (f.present) text += fmt::format("{:<12} {:<9} {}\n", f.name, f.used ? "used" : "not used", f.why);
  }
  return text;
}

json feature_json(const std::vector<kernels::ProcessorFeature>& features) {
  json all = json::array();
  for (const kernels::ProcessorFeature& f : features)
    all.push_back({{"name", f.name}, {"present", f.present}, {"used", f.present && f.used}, {"why", f.why}});
  return all;
}

std::string not_present(const std::vector<kernels::ProcessorFeature>& features) {
  std::vector<std::string_view> names;
  for (const kernels::ProcessorFeature& f : features) {
    if (!f.present) names.push_back(f.name);
  }
  return names.empty() ? "" : fmt::format("not here     {}\n", fmt::join(names, ", "));
}

}  // namespace

Doctor doctor(const Hardware& hardware) {
  const kernels::Context ctx = context_for(hardware);
  const double peak = kernels::measure_fma_peak(ctx, Scalar::f32);
  const double bandwidth = kernels::measure_bandwidth(ctx, std::size_t{384} << 20U);
  const std::size_t memory = runtime::machine_memory_bytes(), available = runtime::available_memory_bytes();
  const std::vector<kernels::ProcessorFeature> features = kernels::processor_features(ctx.simd);
  const std::vector<std::string> gpus = runtime::seen_accelerators(), launchers = runtime::seen_launchers();
  const std::vector<Cost> costs = measure_costs(ctx);
  const double sweep = cost_of(costs, Scalar::f32).stochastic,
               rounded = cost_of(costs, Scalar::bf16).stochastic;
  const Choice choice = choose_preset(costs);
  Doctor d;
  d.text = fmt::format(
      "cpu      {}\ncores    {} ({} used)\nsimd     {}\nmemory   {}, {} available\n"
      "peak     {:.0f} GFLOP/s f32 (fused multiply-add, measured)\n"
      "stream   {:.1f} GB/s (measured)\n",
      kernels::processor_name(), std::thread::hardware_concurrency(), ctx.threads, kernels::name(ctx.simd),
      human_bytes(static_cast<double>(memory)), human_bytes(static_cast<double>(available)), peak / 1e9,
      bandwidth / 1e9);
  d.text += gpus.empty()
                ? "gpu      none seen; this build runs on the cpu\n"
                : fmt::format("gpu      {}: not used, this build runs on the cpu\n", fmt::join(gpus, ", "));
  d.text += launchers.empty() ? "mpi      none seen; this build is one process\n"
                              : fmt::format("mpi      {}: not used, this build is one process\n",
                                            fmt::join(launchers, ", "));
  d.text += "\n" + format_table(costs) + "\n" + feature_table(features) + not_present(features);
  d.text += fmt::format(
      "\nupdate   AdamW in f32 {:.2f} Gvalue/s, in bf16 with stochastic rounding {:.2f} Gvalue/s\n",
      sweep / 1e9, rounded / 1e9);
  d.text += fmt::format("preset   {}: {}\n", choice.preset, choice.why);
  d.json = json{{"cpu", kernels::processor_name()},
                {"cores", std::thread::hardware_concurrency()},
                {"threads", ctx.threads},
                {"simd", kernels::name(ctx.simd)},
                {"memory_bytes", memory},
                {"available_memory_bytes", available},
                {"flops_per_second", peak},
                {"bytes_per_second", bandwidth},
                {"gpu", gpus.empty() ? json() : json{{"seen", gpus}, {"used", false}}},
                {"mpi", launchers.empty() ? json() : json{{"seen", launchers}, {"used", false}}},
                {"features", feature_json(features)},
                {"formats", format_json(costs)},
                {"updates_per_second", {{"f32", sweep}, {"bf16-stochastic", rounded}}},
                {"preset", choice.preset},
                {"why", choice.why}}
               .dump(2);
  return d;
}

}  // namespace mantissa::api
