#include "mantissa/setup/forecast/target_forecast.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "mantissa/engine/plan/caveats.h"
#include "mantissa/engine/plan/explain.h"
#include "mantissa/setup/forecast/forecast.h"

namespace mantissa::forecast {
namespace {

/// Returns the 16-bit preset that `target` supports natively, or the reference.
std::string native_preset(const Target& target) {
  if (format_on(target, "bf16").native) return "bf16-mixed";
  if (format_on(target, "f16").native) return "16-mixed";
  return "32-true";
}

std::string rate_text(double flops_per_second) {
  return fmt::format("{:.3g} TFLOP/s", flops_per_second / 1e12);
}

/// Returns the seconds of a step on `target`, or null if the target cannot multiply the factors.
std::optional<double> seconds_on(const Target& target, const plan::Step& s) {
  const double bandwidth = target.stream_share * target.bytes_per_second;
  double arithmetic = 0;
  if (const std::string format = plan::factor_format(s); !format.empty()) {
    const double share =
        s.op->kind == graph::OpKind::attention ? target.attention_share : target.product_share;
    const double rate = format_on(target, format).flops_per_second;
    if (rate == 0) return std::nullopt;
    arithmetic = s.flops / (share * rate);
  }
  return std::max({arithmetic, s.bytes / bandwidth, target.seconds_per_kernel});
}

}  // namespace

std::vector<TargetFormat> formats_needed(const plan::Program& program, const Target& target) {
  std::vector<TargetFormat> needed;
  for (const plan::FormatUse& use : plan::formats_used(program)) {
    const bool wide = use.format == "f32" || use.format == "f64";
    if (use.factor || !wide) needed.push_back(format_on(target, use.format));
  }
  return needed;
}

std::vector<std::string> format_warnings(const plan::Program& program, const Target& target) {
  std::vector<std::string> warnings;
  const std::string preset = native_preset(target);
  const std::string rate = rate_text(format_on(target, preset == "bf16-mixed" ? "bf16"
                                                       : preset == "16-mixed" ? "f16"
                                                                              : "f32")
                                         .flops_per_second);
  for (const TargetFormat& f : formats_needed(program, target)) {
    if (f.native) continue;
    const std::string instead =
        f.computed_in.empty()
            ? "and no format that represents it, so its time is unknown"
            : fmt::format("it would be computed in {}, {}", f.computed_in, rate_text(f.flops_per_second));
    const std::string cure = preset == program.policy.preset()
                                 ? std::string()
                                 : fmt::format("; {} is native there ({})", preset, rate);
    warnings.push_back(fmt::format("{} has no {}: {}{}", target.name, f.format, instead, cure));
  }
  for (const plan::Imitation& i : plan::imitations(program)) {
    if (i.sums) warnings.push_back(fmt::format("{} has no {}: its own sums suffice", target.name, i.what));
  }
  return warnings;
}

double forecast_seconds_on(const Target& target, const plan::Program& program, double micro_batches) {
  double micro = 0, products = 0;
  for (const plan::Step& s : program.steps) {
    if (s.phase == graph::Phase::evaluate) continue;
    const std::optional<double> seconds = seconds_on(target, s);
    if (!seconds) return 0;
    micro += *seconds;
  }
  if (!program.update) return micro_batches * micro;
  // A pass over all parameters is one kernel on the target, and so is the norm.
  double moved = update_bytes(program);
  for (const plan::Step& s : program.update->steps) {
    if (s.factors.empty()) continue;
    const std::optional<double> seconds = seconds_on(target, s);
    if (!seconds) return 0;
    products += *seconds;
    moved -= s.bytes;
  }
  const double passes =
      moved / (target.stream_share * target.bytes_per_second) + 2 * target.seconds_per_kernel;
  return micro_batches * micro + products + passes;
}

}  // namespace mantissa::forecast
