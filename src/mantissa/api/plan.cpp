#include "mantissa/api/plan.h"

#include <fmt/format.h>

#include "mantissa/api/internal.h"
#include "mantissa/data/rows.h"
#include "mantissa/precision/supported.h"

namespace mantissa::api {
namespace {

std::vector<cost::Target> find_targets(std::span<const std::string> names) {
  std::vector<cost::Target> targets;
  for (const std::string& name : names) targets.push_back(cost::find_target(name));
  return targets;
}

}  // namespace

Plan plan_of(const explain::Explained& e) {
  Plan p;
  p.policy = fmt::format("{}: {}", e.preset, e.line);
  for (const plan::PlanRow& r : e.rows) {
    p.ops.push_back({r.scope, r.op, r.pass, r.stored, r.multiplied, r.accumulated, r.output, r.decided_by,
                     r.kernel, r.flops, r.bytes, r.rounded});
  }
  p.predicted_peak_bytes = e.peak_bytes;
  p.seconds_per_step = e.seconds;
  if (e.training) p.largest_micro_batch_size = e.training->largest_micro_batch_size;
  for (const explain::There& t : e.targets) {
    p.targets.push_back({t.target.name, t.seconds, t.peak_bytes, t.largest_micro_batch_size,
                         t.sequences_that_fit, t.warnings});
  }
  p.warnings = e.warnings;
  p.notes = e.notes;
  p.refusal = e.refusal;
  p.text = explain::to_text(e);
  p.json = explain::to_json(e);
  return p;
}

Plan explain(const Config& config, const Hardware& hardware, std::span<const std::string> targets) {
  const config::RunConfig& run = config.impl().run;
  const std::vector<cost::Target> there = find_targets(targets);
  precision::check_supported(run.policy);
  const kernels::Context ctx = context_for(hardware, run.run.threads);
  const weights::ModelSource source = weights::find_model(run.model);
  // The process holds the data before a run allocates anything.
  const text::Dataset rows = data::load_dataset(run, source.config, {});
  return plan_of(explain::explain_training(run, source.config, ctx, config.impl().told, there));
}

Plan explain_model(const std::filesystem::path& model, const Precision& precision, const Hardware& hardware,
                   std::span<const std::string> targets) {
  const std::vector<cost::Target> there = find_targets(targets);
  const kernels::Context ctx = context_for(hardware);
  config::Told told;
  const precision::Policy policy = policy_for(precision, &told);
  return plan_of(explain::explain_generation(weights::find_model(model).config, policy, ctx, told, there));
}

}  // namespace mantissa::api
