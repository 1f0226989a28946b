#include "mantissa/train/explain/machines.h"

#include <algorithm>

#include "mantissa/engine/runtime/process.h"
#include "mantissa/setup/config/stages.h"
#include "mantissa/setup/forecast/target_forecast.h"

namespace mantissa::explain {
namespace {

There on(const forecast::Target& target, const plan::Program& program, double micro_batches) {
  There there;
  there.target = target;
  there.needed = forecast::formats_needed(program, target);
  for (const std::string& format : forecast::target_formats()) {
    if (std::ranges::find(there.needed, format, &forecast::TargetFormat::format) == there.needed.end())
      there.others.push_back(forecast::format_on(target, format));
  }
  there.usable_bytes = static_cast<std::size_t>(target.memory_share * target.memory_bytes);
  there.seconds = forecast::forecast_seconds_on(target, program, micro_batches);
  there.warnings = forecast::format_warnings(program, target);
  return there;
}

constexpr std::size_t kNoProcess = 0;  // a target's own memory is outside its memory_share

double micro_batches(const config::RunConfig& config) {
  return static_cast<double>(config.batch.global_batch_size) /
         static_cast<double>(config.batch.micro_batch_size);
}

/// Returns the needs of one stage, whose steps run `program`.
StageThere stage_on(const forecast::Target& target, std::size_t usable_bytes, const config::RunConfig& config,
                    const model::ModelConfig& model, const plan::Program& program,
                    const runtime::Device& device) {
  StageThere stage;
  stage.seconds = forecast::forecast_seconds_on(target, program, micro_batches(config));
  const forecast::MemoryForecast memory = forecast::forecast_memory(program, 0, kNoProcess);
  stage.peak_bytes = memory.peak();
  stage.largest_micro_batch_size = forecast::largest_micro_batch(config, model, usable_bytes, memory, device);
  stage.fits = stage.largest_micro_batch_size > 0;
  if (!stage.fits)
    stage.least_bytes = forecast::peak_with_rows(config, model, config.batch.leaf, memory, device);
  stage.sequences_that_fit = forecast::rows_that_fit(config, model, usable_bytes, memory, device);
  return stage;
}

/// Returns the needs of each stage of `run`; without stages, of the whole run.
std::vector<StageThere> stages_on(const forecast::Target& target, std::size_t usable_bytes,
                                  const config::RunConfig& run, const model::ModelConfig& model,
                                  std::span<const programs::RunPart> parts, const runtime::Device& device) {
  std::vector<StageThere> stages;
  for (const programs::RunPart& part : parts) {
    if (part.stage < stages.size()) {  // another part of the same stage
      std::size_t& peak = stages.back().peak_bytes;
      peak = std::max(peak, forecast::forecast_memory(*part.program, 0, kNoProcess).peak());
      continue;
    }
    stages.push_back(stage_on(target, usable_bytes, config::stage_config(run, part.stage),
                              config::stage_model(run, model, part.stage), *part.program, device));
  }
  return stages;
}

}  // namespace

Here here(const plan::Program& program, const forecast::Machine& machine, const runtime::Device& device) {
  Here here;
  here.simd = device.instructions();
  here.threads = device.host().threads;
  here.memory_bytes = runtime::machine_memory_bytes();
  here.rates = machine;
  for (const plan::FormatUse& use : plan::formats_used(program))
    here.formats.emplace_back(use.format, kernels::format_support(use.format, device.host().simd));
  return here;
}

There training_on(const forecast::Target& target, const config::RunConfig& run,
                  const model::ModelConfig& model, std::span<const programs::RunPart> parts, std::size_t part,
                  const runtime::Device& device) {
  const config::RunConfig explained = config::stage_config(run, parts[part].stage);
  There there = on(target, *parts[part].program, micro_batches(explained));
  there.peak_bytes = forecast::forecast_memory(parts, 0, kNoProcess).peak();
  std::vector<StageThere> stages = stages_on(target, there.usable_bytes, run, model, parts, device);
  const auto sequences = [](const StageThere& s) { return s.sequences_that_fit; };
  const auto limiting = std::ranges::min_element(stages, {}, sequences);
  there.limiting_stage = static_cast<std::size_t>(limiting - stages.begin());
  there.largest_micro_batch_size = limiting->largest_micro_batch_size;
  there.sequences_that_fit = limiting->sequences_that_fit;
  there.least_bytes = limiting->least_bytes;
  there.fits = std::ranges::all_of(stages, &StageThere::fits);
  const bool known = std::ranges::all_of(stages, [](const StageThere& s) { return s.seconds > 0; });
  for (std::size_t s = 0; known && s < stages.size(); ++s)
    there.total_seconds += stages[s].seconds * static_cast<double>(config::stage_config(run, s).run.steps);
  for (const programs::RunPart& other : parts) {
    for (std::string& warning : forecast::format_warnings(*other.program, target)) {
      if (std::ranges::find(there.warnings, warning) == there.warnings.end())
        there.warnings.push_back(std::move(warning));
    }
  }
  if (!run.run.stages.empty()) there.stages = std::move(stages);
  return there;
}

There generation_on(const forecast::Target& target, const plan::Program& program, std::size_t weights) {
  There there = on(target, program, 1);
  there.peak_bytes = weights + program.memory.arena();
  there.fits = there.peak_bytes <= there.usable_bytes;
  return there;
}

}  // namespace mantissa::explain
