// What a plan needs of a machine: this one, or one that a run is meant for.
#include <fmt/format.h>

#include <algorithm>

#include "mantissa/api/internal.h"
#include "mantissa/base/error.h"
#include "mantissa/cost/target_forecast.h"
#include "mantissa/kernels/processor.h"
#include "mantissa/plan/caveats.h"
#include "mantissa/plan/explain.h"
#include "mantissa/runtime/process.h"

namespace mantissa::api {
namespace {

using nlohmann::json;

std::string listed(const std::string& all, const std::string& next) {
  return all.empty() ? next : all + ", " + next;
}

/// In doctor's words: 16-bit values are stored and widened, the others lie in memory as a wider format.
const char* how_text(const cost::TargetFormat& f) {
  if (f.native) return "native";
  if (f.computed_in.empty()) return "missing";
  return f.format == "bf16" || f.format == "f16" ? "converted" : "simulated";
}

json formats_json(const plan::Program& program, const cost::Target& target) {
  json formats = json::array();
  const auto add = [&](const std::string& format, bool needed) {
    const cost::TargetFormat f = cost::format_on(target, format);
    formats.push_back({{"format", format},
                       {"native", f.native},
                       {"how", how_text(f)},
                       {"computed_in", f.computed_in},
                       {"flops_per_second", f.flops_per_second},
                       {"needed", needed}});
  };
  const std::vector<cost::TargetFormat> needed = cost::formats_needed(program, target);
  const auto is_needed = [&](const std::string& format) {
    return std::ranges::find(needed, format, &cost::TargetFormat::format) != needed.end();
  };
  for (const std::string& format : cost::target_formats()) add(format, is_needed(format));
  for (const cost::TargetFormat& f : needed) {
    const std::vector<std::string>& known = cost::target_formats();
    if (std::ranges::find(known, f.format) == known.end()) add(f.format, true);
  }
  return formats;
}

/// What a target's JSON has under training and under generation.
json common_json(const cost::Target& target, const plan::Program& program, const TargetPlan& plan) {
  return {{"name", target.name},
          {"description", target.description},
          {"formats", formats_json(program, target)},
          {"bytes_per_second", target.bytes_per_second},
          {"memory_bytes", target.memory_bytes},
          {"peak_bytes", plan.predicted_peak_bytes},
          {"warnings", plan.warnings}};
}

std::string seconds_text(double seconds, const char* of) {
  return seconds == 0 ? fmt::format("none can be given: it cannot multiply a format of the plan")
                      : fmt::format("about {} a {}", human_seconds(seconds), of);
}

/// As data sheets write it: "80 GB".
std::string memory_text(const cost::Target& target) {
  return fmt::format("{:.4g} GB", target.memory_bytes / 1e9);
}

std::size_t usable_memory(const cost::Target& target) {
  return static_cast<std::size_t>(target.memory_share * target.memory_bytes);
}

/// By how much a run of the fewest sequences at once is too large.
std::string too_large_text(const cost::Target& target, const config::RunConfig& config,
                           const model::ModelConfig& model, const cost::MemoryForecast& memory,
                           const kernels::Context& ctx) {
  const std::size_t least = cost::peak_with_rows(config, model, config.batch.leaf, memory, ctx);
  return fmt::format("no, not with one sequence at a time: that needs {}, {} more than can be used",
                     human_bytes(static_cast<double>(least)),
                     human_bytes(static_cast<double>(least - usable_memory(target))));
}

}  // namespace

std::string formats_here(const plan::Program& program) {
  std::string text;
  for (const plan::FormatUse& use : plan::formats_used(program))
    text = listed(text,
                  fmt::format("{} {}", use.format, kernels::name(kernels::format_support(use.format).how)));
  return text;
}

std::string formats_there(const plan::Program& program, const cost::Target& target) {
  std::string text;
  for (const cost::TargetFormat& f : cost::formats_needed(program, target)) {
    text = listed(text, f.native                ? fmt::format("{} native", f.format)
                        : f.computed_in.empty() ? fmt::format("{} NO", f.format)
                                                : fmt::format("{} NO (in {})", f.format, f.computed_in));
  }
  return text;
}

void check_native(const config::RunConfig& config, const plan::Program& program,
                  std::span<const cost::Target> targets) {
  if (!config.native_only) return;
  const auto refuse = [](const std::string& why, const std::string& cure) {
    throw ConfigError(
        fmt::format("precision.native_only = true: {}; use {}, or native_only = false", why, cure));
  };
  for (const cost::Target& target : targets) {
    const std::vector<std::string> lacks = cost::format_warnings(program, target);
    if (!lacks.empty()) refuse(lacks.front(), "another policy or target");
  }
  if (!targets.empty()) return;
  for (const plan::FormatUse& use : plan::formats_used(program)) {
    const kernels::FormatSupport support = kernels::format_support(use.format);
    if (support.how == kernels::How::native) continue;
    refuse(fmt::format("{} is {} on this machine ({}), and {} needs it", use.format,
                       kernels::name(support.how), support.why, use.use),
           "a policy of f32 or f64 alone, such as 32-true");
  }
  for (const plan::Imitation& i : plan::imitations(program))
    refuse(fmt::format("{} is done by own code, and {} needs it", i.what, i.use), "a policy without it");
}

json machine_json(const kernels::Context& ctx, const cost::Machine& machine, const plan::Program& program) {
  json formats = json::array();
  for (const plan::FormatUse& use : plan::formats_used(program)) {
    const kernels::FormatSupport support = kernels::format_support(use.format);
    formats.push_back({{"format", use.format}, {"how", kernels::name(support.how)}, {"why", support.why}});
  }
  return {{"simd", kernels::name(ctx.simd)},
          {"threads", ctx.threads},
          {"memory_bytes", runtime::machine_memory_bytes()},
          {"flops_per_second", machine.flops_per_second},
          {"bytes_per_second", machine.bytes_per_second},
          {"formats", formats}};
}

TargetExplained explain_target(const cost::Target& target, const config::RunConfig& config,
                               const model::ModelConfig& model, const plan::Program& program,
                               const kernels::Context& ctx) {
  TargetExplained out;
  TargetPlan& p = out.plan;
  p.name = target.name;
  cost::MemoryForecast memory = cost::forecast_memory(program, 0);
  memory.process = 0;  // this program's; the target's own is outside of its memory_share
  p.predicted_peak_bytes = memory.peak();
  const double micros = static_cast<double>(config.batch.global_batch_size) /
                        static_cast<double>(config.batch.micro_batch_size);
  p.seconds_per_step = cost::forecast_seconds_on(target, program, micros);
  p.largest_micro_batch_size = cost::largest_micro_batch(config, model, usable_memory(target), memory, ctx);
  p.sequences_that_fit = cost::rows_that_fit(config, model, usable_memory(target), memory, ctx);
  p.warnings = cost::format_warnings(program, target);
  out.json = common_json(target, program, p);
  out.json["seconds_per_step"] = p.seconds_per_step == 0 ? json() : json(p.seconds_per_step);
  out.json["largest_micro_batch_size"] = p.largest_micro_batch_size;
  out.json["sequences_that_fit"] = p.sequences_that_fit;
  const std::string size = memory_text(target);
  const bool fits = p.largest_micro_batch_size > 0;
  out.fits = !fits ? fmt::format("{} on {}: {}", size, target.name,
                                 too_large_text(target, config, model, memory, ctx))
                   : fmt::format("{} on {}: batch.micro_batch_size ≤ {} of this batch; {} sequences in all",
                                 size, target.name, p.largest_micro_batch_size, p.sequences_that_fit);
  out.time = fits ? fmt::format("{} on {}", seconds_text(p.seconds_per_step, "step"), target.name)
                  : fmt::format("none on {}: it does not fit", target.name);
  if (!fits) out.json["seconds_per_step"] = json();
  if (fits && p.seconds_per_step > 0) {
    out.time += fmt::format(", {} in all (stated rates; a factor of 2 either way)",
                            human_seconds(p.seconds_per_step * static_cast<double>(config.run.steps)));
  }
  return out;
}

TargetExplained explain_target(const cost::Target& target, const plan::Program& program,
                               std::size_t weights) {
  TargetExplained out;
  TargetPlan& p = out.plan;
  p.name = target.name;
  p.predicted_peak_bytes = weights + program.memory.arena();
  p.seconds_per_step = cost::forecast_seconds_on(target, program, 1);
  p.warnings = cost::format_warnings(program, target);
  const bool fits = p.predicted_peak_bytes <= usable_memory(target);
  out.json = common_json(target, program, p);
  out.json["seconds_per_token"] = p.seconds_per_step == 0 ? json() : json(p.seconds_per_step);
  out.json["fits"] = fits;
  out.fits = fmt::format("{} on {}: {}", memory_text(target), target.name, fits ? "yes" : "no");
  out.time = fmt::format("{} on {}", seconds_text(p.seconds_per_step, "token"), target.name);
  return out;
}

}  // namespace mantissa::api
