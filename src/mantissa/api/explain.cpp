// The plan as text and JSON, with memory and time.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "mantissa/api/internal.h"
#include "mantissa/base/error.h"
#include "mantissa/kernels/peak.h"
#include "mantissa/model/graphs.h"
#include "mantissa/plan/caveats.h"
#include "mantissa/plan/explain.h"
#include "mantissa/plan/rules.h"
#include "mantissa/precision/supported.h"
#include "mantissa/rollout/generate.h"
#include "mantissa/runtime/process.h"
#include "mantissa/weights/model_files.h"

namespace mantissa::api {
namespace {

using nlohmann::json;

std::vector<PlanOp> ops_of(const std::vector<plan::PlanRow>& rows) {
  std::vector<PlanOp> ops;
  for (const plan::PlanRow& r : rows) {
    ops.push_back({r.scope, r.op, r.pass, r.stored, r.multiplied, r.accumulated, r.output, r.decided_by,
                   r.kernel, r.flops, r.bytes, r.rounded});
  }
  return ops;
}

json ops_json(const std::vector<PlanOp>& ops) {
  json out = json::array();
  for (const PlanOp& o : ops) {
    out.push_back({{"scope", o.scope},
                   {"op", o.op},
                   {"pass", o.pass},
                   {"formats",
                    {{"store", o.stored},
                     {"multiply", o.multiplied},
                     {"accumulate", o.accumulated},
                     {"output", o.output}}},
                   {"rule", o.decided_by},
                   {"kernel", o.kernel},
                   {"flops", o.flops},
                   {"bytes", o.bytes}});
    if (!o.rounded.empty()) out.back()["rounded"] = o.rounded;
  }
  return out;
}

/// Bytes by purpose, as they are listed.
std::array<std::pair<std::string, std::size_t>, 11> purposes(const cost::MemoryForecast& m) {
  return {{{"masters", m.masters},
           {"moments", m.moments},
           {"compensation", m.compensation},
           {"copies", m.copies},
           {"gradients", m.gradients},
           {"shard_sums", m.shard_sums},
           {"activations", m.activations},
           {"work", m.work},
           {"tables", m.tables},
           {"data", m.data},
           {"process", m.process}}};
}

json memory_json(const cost::MemoryForecast& m) {
  json all = {{"peak", m.peak()}};
  for (const auto& [name, bytes] : purposes(m)) all[name] = bytes;
  return all;
}

std::string memory_line(const cost::MemoryForecast& m) {
  std::string line;
  for (const auto& [name, bytes] : purposes(m)) {
    if (bytes > 0)
      line += fmt::format("{}{} {:.1f}", line.empty() ? "" : " + ", name, static_cast<double>(bytes) / 1e6);
  }
  return fmt::format("{} = {:.1f} MB", line, static_cast<double>(m.peak()) / 1e6);
}

std::string parameters_text(double count) {
  return count < 1e6   ? fmt::format("{:.0f}K", count / 1e3)
         : count < 1e9 ? fmt::format("{:.1f}M", count / 1e6)
                       : fmt::format("{:.2f}B", count / 1e9);
}

std::vector<cost::Target> find_targets(std::span<const std::string> names) {
  std::vector<cost::Target> targets;
  for (const std::string& name : names) targets.push_back(cost::find_target(name));
  return targets;
}

/// Pauses in which the machine's peak is looked for again, since nothing else of a plan takes any time.
constexpr int kRests = 3;

/// "here" and each target: how it has the formats of the plan.
std::string machine_lines(const plan::Program& program, const kernels::Context& ctx,
                          std::span<const cost::Target> targets) {
  std::string text = fmt::format("here    {} · {}, {} threads\n", formats_here(program),
                                 kernels::name(ctx.simd), ctx.threads);
  for (const cost::Target& t : targets)
    text += fmt::format("target  {} ({}): {}\n", t.name, t.description, formats_there(program, t));
  return text;
}

}  // namespace

void check_plan(const plan::Program& program) {
  const std::vector<std::string> warnings = plan::rule_warnings(program);
  if (!warnings.empty()) throw ConfigError(warnings.front());
}

Plan describe(const config::RunConfig& config, const model::ModelConfig& model, const plan::Program& program,
              const cost::MemoryForecast& memory, const cost::Machine& machine, const kernels::Context& ctx,
              const config::Told& told, std::span<const cost::Target> targets) {
  Plan p;
  const std::vector<plan::PlanRow> rows = plan::plan_rows(program);
  p.policy = fmt::format("{}: {}", config.policy.preset(), config.policy.line());
  p.ops = ops_of(rows);
  p.predicted_peak_bytes = memory.peak();
  p.seconds_per_step = cost::forecast_seconds(program, config, machine);
  p.largest_micro_batch_size =
      cost::largest_micro_batch(config, model, runtime::machine_memory_bytes(), memory, ctx);
  p.warnings = plan::rule_warnings(cost::lower_run(config, model), config.policy, config.run.steps);
  add_told(p, told);
  if (program.shards == 1 && program.reduce != program.arithmetic) {
    p.notes.push_back(
        fmt::format("reduce={} changes nothing: the batch is one shard; --set batch.shards=N adds gradients "
                    "as N ranks would",
                    name(program.reduce)));
  }
  std::vector<TargetExplained> there;
  for (const cost::Target& t : targets) there.push_back(explain_target(t, config, model, program, ctx));
  const plan::CastsLeft casts = plan::casts_left(program);
  const double micros = static_cast<double>(config.batch.global_batch_size) /
                        static_cast<double>(config.batch.micro_batch_size);

  p.text = fmt::format("{} {} · T={} · batch {} = {:.0f}×{} · {}\n", model.model_type,
                       parameters_text(static_cast<double>(model.parameters())), config.data.sequence_length,
                       config.batch.global_batch_size, micros, config.batch.micro_batch_size,
                       optim::find_optimizer(config.optimizer.name).title);
  p.text += fmt::format("policy  {}\n        {}\n", config.policy.preset(), config.policy.line());
  if (const std::vector<std::int64_t> changes = config.policy.changes(); !changes.empty()) {
    p.text += fmt::format("steps   rules begin or end at step {}; shown is the plan of step 0\n",
                          fmt::join(changes, ", "));
  }
  p.text += fmt::format("{}\nforward\n{}", machine_lines(program, ctx, targets),
                        plan::plan_table(rows, graph::Phase::forward));
  p.text += fmt::format("\nbackward\n{}", plan::plan_table(rows, graph::Phase::backward));
  if (config.batch.recompute != "none") {
    p.text += fmt::format("\nrecomputed in the backward pass\n{}",
                          plan::plan_table(rows, graph::Phase::backward, true));
  }
  p.text += fmt::format("\nupdate\n{}", plan::plan_table(rows, graph::Phase::finish));
  if (program.shards > 1) {
    p.text +=
        fmt::format("\nshards  {} of {} sequences; their gradients are added by a tree in {}\n",
                    program.shards, config.batch.global_batch_size / program.shards, name(program.reduce));
  }
  p.text += fmt::format("\ncasts left  {} ({})\n", casts.count, human_bytes(casts.bytes));
  p.text += fmt::format("memory  {}\n", memory_line(memory));
  p.text += fmt::format("fits    {} here: batch.micro_batch_size ≤ {} of this batch\n",
                        human_bytes(static_cast<double>(runtime::machine_memory_bytes())),
                        p.largest_micro_batch_size);
  for (const TargetExplained& t : there) p.text += fmt::format("        {}\n", t.fits);
  const std::vector<std::string> exceptions = plan::split_exceptions(program);
  p.text += exceptions.empty()
                ? "bits    the same for any threads, instruction set, micro_batch_size, and when resumed\n"
                : fmt::format("bits    depend on micro_batch_size: {}\n", fmt::join(exceptions, "; "));
  p.text += fmt::format("time    about {} a step here, {} in all\n", human_seconds(p.seconds_per_step),
                        human_seconds(p.seconds_per_step * static_cast<double>(config.run.steps)));
  json targets_json = json::array();
  for (TargetExplained& t : there) {
    p.text += fmt::format("        {}\n", t.time);
    p.warnings.insert(p.warnings.end(), t.plan.warnings.begin(), t.plan.warnings.end());
    targets_json.push_back(std::move(t.json));
    p.targets.push_back(std::move(t.plan));
  }
  for (const std::string& n : p.notes) p.text += fmt::format("note    {}\n", n);
  for (const std::string& w : p.warnings) p.text += fmt::format("warning {}\n", w);

  json casts_json = json::array();
  for (const plan::Step& s : program.steps) {
    if (s.op->id == "cast") casts_json.push_back({{"scope", s.scope}, {"bytes", s.bytes}});
  }
  p.json = json{{"policy", {{"preset", config.policy.preset()}, {"line", config.policy.line()}}},
                {"changes_at_steps", config.policy.changes()},
                {"loss_scale", program.policy.loss_scale().str()},
                {"shards", program.shards},
                {"reduce", name(program.reduce)},
                {"ops", ops_json(p.ops)},
                {"casts", casts_json},
                {"memory", memory_json(memory)},
                {"seconds_per_step", p.seconds_per_step},
                {"largest_micro_batch_size", p.largest_micro_batch_size},
                {"machine", machine_json(ctx, machine, program)},
                {"targets", targets_json},
                {"exceptions", exceptions},
                {"warnings", p.warnings},
                {"notes", p.notes},
                {"config", config.to_toml()}}
               .dump(2);
  return p;
}

Plan explain(const Config& config, const Hardware& hardware, std::span<const std::string> targets) {
  const config::RunConfig& run = config.impl().run;
  const std::vector<cost::Target> there = find_targets(targets);
  precision::check_supported(run.policy);
  const kernels::Context ctx = context_for(hardware, run.run.threads);
  const weights::ModelSource source = weights::find_model(run.model);
  const text::Dataset data = load_dataset(run, source.config, {});
  const std::vector<cost::Part> parts = cost::compile_parts(run, source.config, ctx);
  const plan::Program& program = *parts.front().program;
  check_native(run, program, there);
  // What the process holds before a run allocates: the data are in it already.
  const cost::MemoryForecast memory = cost::forecast_memory(parts, 0);
  Plan p = describe(run, source.config, program, memory, cost::measure_machine(ctx, program, kRests), ctx,
                    config.impl().told, there);
  for (const cost::Part& part : parts) {
    const std::vector<std::string> refused = plan::rule_warnings(*part.program);
    if (p.refusal.empty() && !refused.empty()) p.refusal = refused.front();
  }
  return p;
}

Plan explain_model(const std::filesystem::path& model, const Precision& precision, const Hardware& hardware,
                   std::span<const std::string> targets) {
  const std::vector<cost::Target> there = find_targets(targets);
  const kernels::Context ctx = context_for(hardware);
  config::Told told;
  const precision::Policy policy = policy_for(precision, "32-true", &told);
  const weights::ModelSource source = weights::find_model(model);
  const std::int64_t capacity = source.config.max_position_embeddings;
  const plan::Program program = rollout::compile_decode(source.config, policy, capacity, ctx);
  const std::vector<plan::PlanRow> rows = plan::plan_rows(program);
  const cost::Machine machine = cost::measure_machine(ctx, program, kRests);
  Plan p;
  p.policy = fmt::format("{}: {}", policy.preset(), policy.line());
  p.ops = ops_of(rows);
  const cost::MemoryForecast memory = cost::forecast_memory(program, 0);
  const std::size_t weights = runtime::read_weight_bytes(program);
  p.predicted_peak_bytes =
      memory.peak() - memory.moments - memory.compensation - program.memory.weights() + weights;
  // One token at a time reads every matrix once.
  double matrices = 0;
  for (const plan::Step& s : program.steps) {
    if (s.op->id == "matmul") matrices += static_cast<double>(program.buffer(s.inputs[1].buffer).bytes);
  }
  p.seconds_per_step = matrices / machine.bytes_per_second;
  p.warnings = plan::rule_warnings(program);
  add_told(p, told);
  p.text = fmt::format(
      "{} {} · generation, {} positions\npolicy  {}\n        {}\n{}\n{}\nmemory  weights {} + "
      "cache {} + work {} = {}\ntime    about {} a token here\n",
      source.config.model_type, parameters_text(static_cast<double>(source.config.parameters())), capacity,
      policy.preset(), policy.line(), machine_lines(program, ctx, there),
      plan::plan_table(rows, graph::Phase::forward), human_bytes(static_cast<double>(weights)),
      human_bytes(static_cast<double>(program.memory.states)),
      human_bytes(static_cast<double>(program.memory.activations + program.memory.work)),
      human_bytes(static_cast<double>(p.predicted_peak_bytes)), human_seconds(p.seconds_per_step));
  json targets_json = json::array();
  for (const cost::Target& t : there) {
    TargetExplained e = explain_target(t, program, weights);
    p.text += fmt::format("target  fits {}; {}\n", e.fits, e.time);
    p.warnings.insert(p.warnings.end(), e.plan.warnings.begin(), e.plan.warnings.end());
    targets_json.push_back(std::move(e.json));
    p.targets.push_back(std::move(e.plan));
  }
  for (const std::string& n : p.notes) p.text += fmt::format("note    {}\n", n);
  for (const std::string& w : p.warnings) p.text += fmt::format("warning {}\n", w);
  p.json = json{{"policy", {{"preset", policy.preset()}, {"line", policy.line()}}},
                {"loss_scale", policy.loss_scale().str()},
                {"ops", ops_json(p.ops)},
                {"memory",
                 {{"weights", weights}, {"cache", program.memory.states}, {"peak", p.predicted_peak_bytes}}},
                {"seconds_per_token", p.seconds_per_step},
                {"machine", machine_json(ctx, machine, program)},
                {"targets", targets_json},
                {"warnings", p.warnings},
                {"notes", p.notes}}
               .dump(2);
  return p;
}

}  // namespace mantissa::api
