#include "mantissa/explain/machines.h"

#include <algorithm>

#include "mantissa/cost/target_forecast.h"
#include "mantissa/runtime/process.h"

namespace mantissa::explain {
namespace {

There on(const cost::Target& target, const plan::Program& program, double micro_batches) {
  There there;
  there.target = target;
  there.needed = cost::formats_needed(program, target);
  for (const std::string& format : cost::target_formats()) {
    if (std::ranges::find(there.needed, format, &cost::TargetFormat::format) == there.needed.end())
      there.others.push_back(cost::format_on(target, format));
  }
  there.usable_bytes = static_cast<std::size_t>(target.memory_share * target.memory_bytes);
  there.seconds = cost::forecast_seconds_on(target, program, micro_batches);
  there.warnings = cost::format_warnings(program, target);
  return there;
}

}  // namespace

Here here(const plan::Program& program, const cost::Machine& machine, const runtime::Device& device) {
  Here here;
  here.simd = device.instructions();
  here.threads = device.host().threads;
  here.memory_bytes = runtime::machine_memory_bytes();
  here.rates = machine;
  for (const plan::FormatUse& use : plan::formats_used(program))
    here.formats.emplace_back(use.format, kernels::format_support(use.format, device.host().simd));
  return here;
}

There training_on(const cost::Target& target, const config::RunConfig& config,
                  const model::ModelConfig& model, const plan::Program& program,
                  const runtime::Device& device) {
  const double micro_batches = static_cast<double>(config.batch.global_batch_size) /
                               static_cast<double>(config.batch.micro_batch_size);
  There there = on(target, program, micro_batches);
  cost::MemoryForecast memory = cost::forecast_memory(program, 0);
  memory.process = 0;  // this is the process here; the target's own memory is outside its memory_share
  there.peak_bytes = memory.peak();
  there.largest_micro_batch_size =
      cost::largest_micro_batch(config, model, there.usable_bytes, memory, device);
  there.fits = there.largest_micro_batch_size > 0;
  if (!there.fits) there.least_bytes = cost::peak_with_rows(config, model, config.batch.leaf, memory, device);
  there.sequences_that_fit = cost::rows_that_fit(config, model, there.usable_bytes, memory, device);
  return there;
}

There generation_on(const cost::Target& target, const plan::Program& program, std::size_t weights) {
  There there = on(target, program, 1);
  there.peak_bytes = weights + program.memory.arena();
  there.fits = there.peak_bytes <= there.usable_bytes;
  return there;
}

}  // namespace mantissa::explain
