#include "mantissa/app/api/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "mantissa/app/api/internal.h"
#include "mantissa/precision/policy/supported.h"
#include "mantissa/setup/config/adapter.h"
#include "mantissa/setup/config/options.h"
#include "mantissa/setup/data/rows.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/setup/programs/narrow_layers.h"
#include "mantissa/train/run/work.h"

namespace mantissa::api {
namespace {

std::vector<forecast::Target> find_targets(const std::vector<std::string>& names) {
  std::vector<forecast::Target> targets;
  for (const std::string& name : names) targets.push_back(forecast::find_target(name));
  return targets;
}

/// A DeepSpeed file describes training: explain a run of the model with the file's settings and defaults for
/// the rest.
Config training_of(const std::filesystem::path& path, const model::ModelConfig& model,
                   const Precision& precision) {
  constexpr std::int64_t kUsualLength = 256;
  const std::int64_t length = std::min(kUsualLength, model.usual_positions());
  const Config config = Config::parse(
      fmt::format("[run]\nsteps = 1\n[model]\npath = {}\n[data]\nsource = \"kk\"\nsequence_length = {}\n",
                  config::toml_text(path.string()), length),
      {}, precision);
  Config::Impl impl = config.impl();
  impl.told.notes.push_back(
      fmt::format("a DeepSpeed file describes training, so this plan is for training, with sequence_length "
                  "{} and defaults for missing settings; --precision without --deepspeed explains generation",
                  length));
  precision::check_supported(impl.run.policy);
  return Config(std::make_shared<const Config::Impl>(std::move(impl)));
}

}  // namespace

Plan plan_of(const explain::Explained& e) {
  Plan p;
  p.policy = fmt::format("{}: {}", e.title, e.line);
  for (const plan::PlanRow& r : e.rows) {
    p.ops.push_back({r.scope, r.op, r.pass, r.stored, r.multiplied, r.accumulated, r.output, r.decided_by,
                     r.kernel, r.flops, r.bytes, r.rounded, r.order});
  }
  p.predicted_peak_bytes = e.peak_bytes;
  p.seconds_per_step = e.seconds;
  if (e.training) p.largest_micro_batch_size = e.training->largest_micro_batch_size;
  for (const explain::There& t : e.targets) {
    p.targets.push_back({t.target.name, t.seconds, t.peak_bytes, t.largest_micro_batch_size,
                         t.sequences_that_fit, t.warnings, t.fits, t.total_seconds});
  }
  p.warnings = e.warnings;
  p.notes = e.notes;
  p.refusal = e.refusal;
  p.text = explain::to_text(e);
  p.json = explain::to_json(e);
  return p;
}

Plan explain(const Config& config, const Hardware& hardware, const std::vector<std::string>& targets,
             const Data& data, const PlanRanks& ranks) {
  const config::RunConfig& run = config.impl().run;
  const std::vector<forecast::Target> there = find_targets(targets);
  explain::AskedRanks asked{ranks.ranks, ranks.nodes};
  if (!ranks.network.empty()) asked.network = forecast::read_network(ranks.network);
  precision::check_supported(run.policy);
  const auto device = device_for(hardware, run.run.threads, ranks.here);
  weights::ModelSource source = weights::find_run_model(run);
  // The forecast counts the data, which a run holds before it allocates anything else.
  config::Told told = config.impl().told;
  const run::Work work = run::work_of(run, source, memory_of(data), *device, &told.notes);
  if (!in_memory(data)) data::add_notes(run, source.config, told);
  std::ranges::move(programs::narrow_layers_notes(run, source.config), std::back_inserter(told.notes));
  data::files_of_tokenizer(run, source.config, in_memory(data));  // throws what would refuse the run
  return plan_of(explain::explain_training(work.config, source.config, *device, told, there, 0,
                                           work.task->passes(), asked));
}

Plan explain_model(const std::filesystem::path& model, const Precision& precision, const Hardware& hardware,
                   const std::vector<std::string>& targets) {
  const std::vector<forecast::Target> there = find_targets(targets);
  const auto device = device_for(hardware);
  const weights::ModelSource source = weights::find_model(model);
  if (!precision.deepspeed.empty()) {
    const Config config = training_of(model, source.config, precision);
    return plan_of(
        explain::explain_training(config.impl().run, source.config, *device, config.impl().told, there));
  }
  config::Told told;
  const precision::Policy policy = config::adapted_policy(policy_for(precision, &told), source.config);
  std::ranges::move(programs::narrow_layers_notes(source.config), std::back_inserter(told.notes));
  if (source.tensors != nullptr) {
    const std::map<std::string, std::string>& origin = source.tensors->metadata();
    const auto rounded_to = origin.find("mantissa.rounded_to");
    if (rounded_to != origin.end() && !parse_scalar(rounded_to->second)) {
      told.notes.push_back(fmt::format(
          "origin: the weights were quantized to {}; steps read matrices of Q4_0, Q4_1, Q5_0, Q5_1 "
          "and Q8_0 in their blocks, and dequantized ones of other types",
          rounded_to->second));
    }
  }
  return plan_of(explain::explain_generation(source, policy, *device, told, there));
}

std::vector<std::string> known_targets() {
  std::vector<std::string> names;
  for (const forecast::Target& target : forecast::known_targets()) names.push_back(target.name);
  return names;
}

}  // namespace mantissa::api
