#include "mantissa/train/explain/explained.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "mantissa/engine/model/adapter.h"
#include "mantissa/engine/model/rope_override.h"
#include "mantissa/engine/plan/caveats.h"
#include "mantissa/engine/plan/rules.h"
#include "mantissa/generate/rollout/generate.h"
#include "mantissa/setup/config/stages.h"
#include "mantissa/setup/forecast/native.h"
#include "mantissa/setup/programs/decoding.h"
#include "mantissa/train/explain/machines.h"
#include "mantissa/train/explain/small_updates.h"

namespace mantissa::explain {
namespace {

/// Pauses, each followed by another measurement of the machine. Unlike a run, a plan has time for it.
constexpr int kRests = 3;

/// Returns the rates of the machine, measured within the memory that the program would take.
forecast::Machine measured(const runtime::Device& device, const plan::Program& program) {
  return forecast::measure_machine(device, program, program.memory.arena() + program.memory.weights(),
                                   kRests);
}

Explained begin(const model::ModelConfig& model, const precision::Policy& policy,
                const plan::Program& program, const forecast::Machine& machine,
                const runtime::Device& device) {
  Explained e;
  e.preset = policy.preset();
  e.name = policy.short_line();
  e.title = policy.title();
  e.line = policy.line();
  e.loss_scale = program.policy.loss_scale().str();
  e.model_type = model.model_type;
  e.parameters = static_cast<double>(model.parameters());
  e.rows = plan::plan_rows(program);
  e.roundings = plan::rounding_rows(program);
  for (const plan::PlanRow& row : e.rows) e.units.push_back(unit_names(row, device));
  e.here = here(program, machine, device);
  e.here.units = unit_uses(e.rows, machine, device);
  return e;
}

/// Returns a warning for gradients in f16 that no loss scale lifts above its smallest number, or "".
std::string unscaled_warning(const plan::Program& program) {
  if (program.policy.loss_scale().kind != precision::LossScale::Kind::none) return "";
  const auto is_f16 = [&](const plan::Step& s) {
    return s.phase == graph::Phase::backward && std::ranges::any_of(s.outputs, [&](plan::BufferId id) {
             const plan::Buffer& out = program.buffer(id);
             return !out.integer && out.type == Scalar::f16;
           });
  };
  if (std::ranges::none_of(program.steps, is_f16)) return "";
  return "gradients in f16 have no loss scale: those below 6e-08 become zero; --set "
         "precision.loss_scale=dynamic lifts them above it";
}

std::optional<AdapterPlan> adapter_plan(const model::ModelConfig& model, const plan::Program& program,
                                        const forecast::MemoryForecast& memory) {
  if (model.adapter == nullptr) return std::nullopt;
  AdapterPlan plan;
  for (const plan::Slot& slot : program.slots) {
    if (slot.gradient != plan::kNoBuffer) plan.parameters += static_cast<double>(slot.shape.count());
  }
  plan.trained_bytes = memory.masters + memory.copies + memory.gradients + memory.moments;
  plan.frozen_bytes = memory.frozen;
  if (model.base) plan.base = traits(*model.base).name;
  if (model.adapter->states) {
    plan.kind = "state";
    plan.layers = plan.all_layers = model::recurrent_layers(model).size();
    return plan;
  }
  plan.kind = model.adapter->dora ? "DoRA" : "LoRA";
  if (model.adapter->rslora) plan.kind = "rs" + plan.kind;
  plan.layers = model.adapter->layers.size();
  plan.all_layers = model::linear_layers(model).size() + model::expert_layers(model).size();
  plan.smallest_rank = std::numeric_limits<std::int64_t>::max();
  for (const auto& [scope, layer] : model.adapter->layers) {
    plan.smallest_rank = std::min(plan.smallest_rank, layer.rank);
    plan.largest_rank = std::max(plan.largest_rank, layer.rank);
  }
  return plan;
}

std::vector<StagePlan> stage_plans(const config::RunConfig& run, const model::ModelConfig& model,
                                   std::span<const programs::RunPart> parts, std::size_t data_bytes,
                                   const forecast::Machine& machine) {
  std::vector<StagePlan> plans;
  for (const programs::RunPart& part : parts) {
    if (part.stage < plans.size()) continue;  // another part of the same stage
    const config::RunConfig own = config::stage_config(run, part.stage);
    plans.push_back({.first = part.first + 1,
                     .last = part.first + own.run.steps,
                     .sequence_length = own.data.sequence_length,
                     .global_batch_size = own.batch.global_batch_size,
                     .micro_batch_size = own.batch.micro_batch_size,
                     .rope_theta = model::rope_theta(config::stage_model(run, model, part.stage)),
                     .lr = own.optimizer.lr,
                     .memory = forecast::forecast_memory(std::span(&part, 1), data_bytes),
                     .seconds = forecast::forecast_seconds(*part.program, own, machine)});
  }
  return plans;
}

/// Adds the config's notes and warnings first, then those of the model and the plan, then those of targets.
void add_warnings(Explained& e, const model::ModelConfig& model, std::vector<std::string> of_plan,
                  const config::Told& told) {
  e.notes = told.notes;
  e.notes.insert(e.notes.end(), model.notes.begin(), model.notes.end());
  e.warnings = told.warnings;
  for (std::string& warning : of_plan) {
    if (std::ranges::find(told.warnings, warning) == told.warnings.end())
      e.warnings.push_back(std::move(warning));
  }
  for (const There& there : e.targets)
    e.warnings.insert(e.warnings.end(), there.warnings.begin(), there.warnings.end());
}

/// Marks the warnings with which a run stops as an error, and adds those that are missing. `runs` names the
/// commands.
void mark_refused(Explained& e, std::span<const std::string> refused, std::string_view runs) {
  for (const std::string& text : refused) {
    const std::string marked = fmt::format("{}; an error of {}", text, runs);
    const auto same = std::ranges::find(e.warnings, text);
    if (same != e.warnings.end()) {
      *same = marked;
    } else if (std::ranges::find(e.warnings, marked) == e.warnings.end()) {
      e.warnings.push_back(marked);
    }
  }
}

}  // namespace

Explained describe_training(const config::RunConfig& run, const model::ModelConfig& base,
                            std::span<const programs::RunPart> parts, std::size_t part,
                            const forecast::MemoryForecast& memory, const forecast::Machine& machine,
                            const runtime::Device& device, const config::Told& told,
                            std::span<const forecast::Target> targets,
                            std::span<const forecast::OtherPass> passes) {
  const plan::Program& program = *parts[part].whole;
  const config::RunConfig config = config::stage_config(run, parts[part].stage);
  const model::ModelConfig model = config::stage_model(run, base, parts[part].stage);
  Explained e = begin(model, config.policy, program, machine, device);
  e.peak_bytes = memory.peak();
  e.fits = e.peak_bytes <= e.here.memory_bytes;
  config::RunConfig share = config;  // of one rank
  share.batch.global_batch_size /= parts[part].rank.ranks / parts[part].rank.parts;
  const double other_seconds = forecast::forecast_seconds(passes, share, machine, parts[part].rank.ranks);
  e.seconds = forecast::forecast_seconds(*parts[part].program, share, machine) + other_seconds;
  if (std::ranges::any_of(passes, [](const forecast::OtherPass& pass) { return pass.generated > 0; }))
    e.rollout_seconds = other_seconds;
  Training& t = e.training.emplace();
  t.config = run;
  t.stage_config = config;
  t.stage = parts[part].stage;
  t.rope_theta = model::rope_theta(model);
  if (!run.run.stages.empty()) t.stages = stage_plans(run, base, parts, memory.data, machine);
  t.sequence_shards = config.distributed.sequence_shards;
  t.shards = program.shards / t.sequence_shards;
  t.reduce = program.reduce;
  t.reduce_rounding = program.reduce_rounding;
  t.sent_bytes = forecast::sent_bytes(program, program.shards);
  for (const plan::Step& s : program.steps) {
    if (s.op->duty == graph::Duty::conversion) t.casts.emplace_back(s.scope, s.bytes);
  }
  t.casts_left = plan::casts_left(program);
  t.steps = program.steps.size();
  for (const plan::ChunkedSteps& range : program.chunked) t.chunked_steps += range.end - range.begin;
  t.memory = memory;
  t.adapter = adapter_plan(model, program, memory);
  t.largest_micro_batch_size =
      forecast::largest_micro_batch(config, model, e.here.memory_bytes, memory, device);
  if (t.largest_micro_batch_size == 0)
    t.least_bytes = forecast::peak_with_rows(config, model, config.batch.leaf, memory, device);
  t.exceptions = plan::split_exceptions(program);
  for (const forecast::Target& target : targets)
    e.targets.push_back(training_on(target, run, base, parts, part, device));
  std::vector<std::string> warnings =
      plan::rule_warnings(programs::lower_run(config, model), config.policy, run.run.steps);
  for (std::string& w : small_update_warnings(config, program)) warnings.push_back(std::move(w));
  if (std::string w = unscaled_warning(program); !w.empty()) warnings.push_back(std::move(w));
  add_warnings(e, model, std::move(warnings), told);
  if (config.train.objective == "rl" && config.rl.rollout_precision.empty() &&
      plan::scales_by_batch(program)) {
    e.notes.emplace_back(
        "scales of the current step (scaling=current, as nvfp4 has by default) depend on the tokens that are computed "
        "together, so the ratio of the first step on a rollout is near 1, not 1; rollout_difference in "
        "metrics.jsonl has the difference");
  }
  if (program.shards == 1 && program.reduce != program.arithmetic) {
    e.notes.push_back(fmt::format(
        "reduce={}{} has no effect: the batch is one shard; --set batch.shards=N adds gradients as "
        "N ranks would",
        name(program.reduce), program.reduce_rounding == Rounding::nearest ? "" : " with reduce_rounding"));
  }
  return e;
}

Explained explain_training(const config::RunConfig& config, const model::ModelConfig& model,
                           const runtime::Device& device, const config::Told& told,
                           std::span<const forecast::Target> targets, std::size_t data_bytes,
                           std::span<const forecast::OtherPass> passes, const AskedRanks& ranks) {
  const std::vector<programs::RunPart> parts = programs::compile_parts(config, model, device);
  const plan::Program& program = *parts.front().program;
  if (config.native_only) forecast::check_native(program, device, targets);
  forecast::MemoryForecast memory = forecast::forecast_memory(parts, data_bytes);
  forecast::add_memory(memory, passes, programs::largest_arena(parts));
  Explained e = describe_training(config, model, parts, 0, memory, measured(device, program), device, told,
                                  targets, passes);
  for (const programs::RunPart& part : parts) {
    const std::vector<std::string> refused = plan::rule_warnings(*part.program);
    if (e.refusal.empty() && !refused.empty()) e.refusal = refused.front();
    mark_refused(e, refused, "train");
  }
  if (ranks.ranks > 1) {
    e.training->ranks = forecast::forecast_ranks(config, model, device, ranks.ranks, ranks.nodes,
                                                 ranks.network, e.here.rates, memory, passes);
  }
  return e;
}

Explained explain_generation(const weights::ModelSource& source, const precision::Policy& policy,
                             const runtime::Device& device, const config::Told& told,
                             std::span<const forecast::Target> targets) {
  const model::ModelConfig& model = source.config;
  const std::int64_t positions = model.usual_positions();
  const auto compiled = programs::compile_decode(model, policy, positions, device);
  const plan::Program& program = *compiled;
  Explained e = begin(model, policy, program, measured(device, program), device);
  Generation& g = e.generation.emplace();
  g.positions = positions;
  const weights::ReadBytes weights = weights::read_bytes(program, source);
  g.weights = weights.all;
  g.cache = program.memory.states;
  g.work = program.memory.activations + program.memory.work;
  const forecast::MemoryForecast memory = forecast::forecast_memory(program, 0);
  g.tables = memory.tables - g.cache;
  g.process = memory.process;
  e.peak_bytes = g.weights + g.cache + g.work + g.tables + g.process;
  e.fits = e.peak_bytes <= e.here.memory_bytes;
  // Each token reads every matrix once, but of experts those that it chose.
  double matrices = 0;
  for (const plan::Step& s : program.steps) {
    if (s.op->kind != graph::OpKind::product) continue;
    const plan::BufferId weight = s.inputs[1].buffer;
    const Shape& shape = program.buffer(weight).shape;
    const double chosen = shape.rank() < 3
                              ? 1.0
                              : static_cast<double>(program.buffer(s.inputs[2].buffer).shape.last()) /
                                    static_cast<double>(shape.dim(0).size);
    matrices += chosen * static_cast<double>(weights.of_buffer[static_cast<std::size_t>(weight)]);
  }
  e.seconds = matrices / e.here.rates.bytes_per_second;
  for (const forecast::Target& target : targets)
    e.targets.push_back(generation_on(target, program, g.weights));
  const std::vector<std::string> refused = plan::rule_warnings(program);
  std::vector<std::string> warnings = plan::inserted_step_warnings(policy);
  warnings.insert(warnings.end(), refused.begin(), refused.end());
  add_warnings(e, model, std::move(warnings), told);
  mark_refused(e, refused, "generate, eval and trace");
  return e;
}

}  // namespace mantissa::explain
