// What this machine is, what each format costs on it, and which preset it should use.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "mantissa/api/format_costs.h"
#include "mantissa/api/internal.h"
#include "mantissa/kernels/peak.h"
#include "mantissa/kernels/processor.h"
#include "mantissa/runtime/process.h"
#include "mantissa/runtime/surroundings.h"

namespace mantissa::api {
namespace {

using nlohmann::json;

struct Choice {
  std::string preset, why;
};

/// Half the bytes of activations at nearly the speed of f32 is worth it; much slower is not. bf16 before f16:
/// it has f32's range, so that no loss scale is needed.
Choice choose_preset(const Costs& costs) {
  constexpr double kWorthIt = 0.9;
  const double f32 = costs.of("f32").product;
  const double bf16 = costs.of("bf16").product, f16 = costs.of("f16").product;
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

std::string format_table(const Costs& costs) {
  const double f32 = costs.of("f32").product;
  std::string text = fmt::format("{:<8}{:<11}{:>15}{:>9}{:>18}  {}\n", "format", "how", "product", "of f32",
                                 "cast from f32", "what happens");
  for (const FormatCost& c : costs.formats) {
    const kernels::FormatSupport support = kernels::format_support(c.name);
    const std::string conversion =
        c.conversion == 0 ? "while packed" : fmt::format("{:.2f} Gvalue/s", c.conversion / 1e9);
    text +=
        fmt::format("{:<8}{:<11}{:>7.0f} GFLOP/s{:>7.2f} ×{:>18}  {}\n", c.name, kernels::name(support.how),
                    c.product / 1e9, c.product / f32, conversion, support.why);
  }
  return text;
}

json format_json(const Costs& costs) {
  const double f32 = costs.of("f32").product;
  json formats = json::array();
  for (const FormatCost& c : costs.formats) {
    const kernels::FormatSupport support = kernels::format_support(c.name);
    formats.push_back({{"format", c.name},
                       {"how", kernels::name(support.how)},
                       {"why", support.why},
                       {"flops_per_second", c.product},
                       {"relative_to_f32", c.product / f32},
                       {"casts_per_second", c.conversion == 0 ? json() : json(c.conversion)}});
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
  const Costs costs = measure_costs(ctx);
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
      costs.update.f32 / 1e9, costs.update.bf16_stochastic / 1e9);
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
                {"updates_per_second",
                 {{"f32", costs.update.f32}, {"bf16-stochastic", costs.update.bf16_stochastic}}},
                {"preset", choice.preset},
                {"why", choice.why}}
               .dump(2);
  return d;
}

}  // namespace mantissa::api
