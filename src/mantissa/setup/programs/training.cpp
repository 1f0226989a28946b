#include "mantissa/setup/programs/training.h"

#include <algorithm>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/engine/model/graphs.h"
#include "mantissa/engine/optim/common_settings.h"
#include "mantissa/engine/plan/compile.h"
#include "mantissa/engine/plan/passes.h"
#include "mantissa/precision/policy/glob.h"
#include "mantissa/setup/config/adapter.h"
#include "mantissa/setup/config/post_training.h"
#include "mantissa/setup/config/ranks.h"
#include "mantissa/setup/config/stages.h"
#include "mantissa/setup/objective/objective.h"

namespace mantissa::programs {

std::int64_t tokens_of(const config::RunConfig& config, std::int64_t items) {
  return items * config::rows_per_item(config) * config.data.sequence_length;
}

namespace {

/// Returns the weight of the load-balancing loss: that of the config, or the one that the model asks for.
double balance_weight(const config::RunConfig& config, const model::ModelConfig& model) {
  const double own = config.train.router_aux_loss_coef;
  if (own > 0 && !model.router_aux_loss_coef) {
    throw ConfigError("train.router_aux_loss_coef = {}: this {} model has no experts. Fix: remove the key",
                      own, model.model_type);
  }
  const double weight = own >= 0 ? own : model.router_aux_loss_coef.value_or(0);
  if (weight == 0) return 0;
  const char* const kWithout = "train.router_aux_loss_coef = 0 trains without it";
  if (config.train.objective != "pretrain" && config.train.objective != "sft") {
    throw ConfigError(
        "output_router_logits of the model's config.json asks for the load-balancing loss, which pretrain and "
        "sft add, but not train.objective = \"{}\". Fix: {}",
        config.train.objective, kWithout);
  }
  if (config.distributed.sequence_shards > 1) {
    throw ConfigError(
        "the load-balancing loss of weight {} is one over whole rows, which distributed.sequence_shards = {} "
        "divides. Fix: {}, or remove sequence_shards",
        weight, config.distributed.sequence_shards, kWithout);
  }
  return weight;
}

model::DropoutRates dropout_of(const config::RunConfig& config) {
  return {config.train.attention_dropout, config.train.residual_dropout, config.adapter.dropout};
}

/// Returns what the objective of `config` needs besides log-probabilities.
model::Extras extras_of(const config::RunConfig& config, const model::ModelConfig& model) {
  const std::int64_t carried = config.data.carry_state ? config.batch.global_batch_size : 0;
  const double balance = balance_weight(config, model);
  if (config.train.objective != "rl") {
    return {.l2wrap = config.train.l2wrap,
            .z_loss = config.train.z_loss,
            .balance = balance,
            .carried = carried,
            .dropout = dropout_of(config)};
  }
  return {.entropy = config.rl.entropy_coef > 0 ? model::Entropy::trained : model::Entropy::none,
          .value = config.rl.algorithm == "ppo",
          .dropout = dropout_of(config)};
}

/// Returns the graph of `config` for micro-batches of `items` items, differentiated by all parameters that
/// are not frozen.
graph::Graph training_graph(const config::RunConfig& config, const model::ModelConfig& model,
                            std::int64_t items) {
  const std::int64_t length = config.data.sequence_length;
  const std::int64_t tokens = items * config::rows_per_item(config) * config::tokens_per_rank(config);
  const std::span<const optim::Group> groups = config.optimizer.groups;
  const auto frozen = [groups](std::string_view name) { return optim::settings_of(groups, name).freeze; };
  const model::Extras extras = extras_of(config, model);
  if (model.scores) return model::build_scores(model, tokens, length, true, frozen, dropout_of(config));
  return model::build_log_prob(model, tokens, length, true, frozen, extras);
}

/// Returns the formats of the blocks that hold frozen weights: those of an adapter's base, or of groups.
plan::QuantizedSlots quantized_slots(const config::RunConfig& config, const model::ModelConfig& model) {
  if (model.adapter != nullptr) return model::held_in_blocks(model);
  return [groups = std::span<const optim::Group>(config.optimizer.groups)](std::string_view name) {
    return optim::settings_of(groups, name).held_in();
  };
}

/// Throws if a group matches only parameters of an adapter's base.
void check_adapter_groups(std::span<const optim::Group> groups, const graph::Graph& graph) {
  for (const optim::Group& group : groups) {
    bool trained = false, of_base = false;
    for (const graph::ValueId p : graph.parameters()) {
      const graph::Value& value = graph.value(p);
      if (precision::scope_match(group.match, value.name)) (value.fixed ? of_base : trained) = true;
    }
    if (trained || !of_base) continue;
    throw ConfigError(
        "{}: optimizer.group match = {} matches only weights of the adapter's base, which are frozen. Groups "
        "select among the adapter's parameters, such as \"*.lora_A\"; adapter.base is the format of the base",
        group.origin, in_quotes(group.match));
  }
}

/// Returns the optimizer of `config`, a run of `steps` steps or a stage of it, with the parameters that it
/// updates.
UpdateSource update_source(const config::RunConfig& config, const model::ModelConfig& model,
                           std::int64_t steps) {
  const config::OptimizerSection& section = config.optimizer;
  const graph::Graph graph = training_graph(config, model, 1);
  std::vector<std::string> names;
  for (const graph::ValueId p : graph.parameters()) {
    if (!graph.value(p).fixed) names.push_back(graph.value(p).name);  // groups are for what can be trained
  }
  check_adapter_groups(section.groups, graph);
  optim::check_groups(section.groups, names);
  const auto decay = section.settings.find("weight_decay");
  UpdateSource source{
      &optim::find_optimizer(section.name),
      optim::with_facts(section.settings, {.warmup_steps = config.schedule.warmup_steps, .steps = steps}),
      optim::trained_parameters(graph)};
  for (optim::Parameter& p : source.parameters) {
    const optim::GroupSettings group = optim::settings_of(section.groups, p.name);
    const bool decays = p.shape.rank() >= 2 && decay != section.settings.end();
    p.lr_scale = group.lr_scale;
    p.weight_decay = group.weight_decay.value_or(decays ? std::get<double>(decay->second) : 0);
  }
  return source;
}

plan::Program compile_alone(const config::RunConfig& config, const model::ModelConfig& model,
                            std::int64_t rows, const runtime::Device& device, bool fold, bool fuse,
                            std::int64_t step) {
  const std::int64_t length = config::tokens_per_rank(config), parts = config.distributed.sequence_shards;
  plan::CompileOptions options;
  options.longest_row = length;
  options.longest_leaf = length * config.batch.leaf;
  options.sequence_parts = parts;
  options.shards = config.batch.shards * parts;
  options.one_micro_batch = rows == config.batch.global_batch_size;
  options.recompute = plan::parse_recompute(config.batch.recompute);
  options.chunk_tokens = config.batch.chunk_tokens;
  options.fold = fold;
  options.fuse = fuse;
  options.quantized = quantized_slots(config, model);
  options.join_head = fuse && objective::seeds_known(config.train.objective);
  const precision::Policy policy = config::adapted_policy(config.policy.at_step(step), config.adapter);
  return plan::compile(training_graph(config, model, rows), policy, options, device.host());
}

}  // namespace

plan::Program compile_training(const config::RunConfig& config, const model::ModelConfig& model,
                               std::int64_t rows, const runtime::Device& device, bool fold, bool fuse,
                               std::int64_t step) {
  plan::Program program = compile_alone(config, model, rows, device, fold, fuse, step);
  add_update(program, update_source(config, model, config.run.steps), device);
  return program;
}

plan::Program compile_log_probs(const config::RunConfig& config, const model::ModelConfig& model,
                                const runtime::Device& device, std::int64_t step, bool value) {
  const std::int64_t length = config.data.sequence_length;
  plan::CompileOptions options;
  options.longest_row = options.longest_leaf = length;
  options.quantized = model::held_in_blocks(model);
  options.chunk_tokens = config.batch.chunk_tokens;
  const precision::Policy policy = config::adapted_policy(config.policy.at_step(step), config.adapter);
  const graph::Graph graph = model::build_log_prob(model, tokens_of(config, config.batch.micro_batch_size),
                                                   length, false, {}, {model::Entropy::none, value});
  return plan::compile(graph, policy, options, device.host());
}

plan::Lower lower_run(const config::RunConfig& config, const model::ModelConfig& model) {
  const auto graph =
      std::make_shared<graph::Graph>(training_graph(config, model, config.batch.micro_batch_size));
  return [graph, source = update_source(config, model, config.run.steps),
          adapter = config.adapter](const precision::Policy& of_run) {
    const precision::Policy policy = config::adapted_policy(of_run, adapter);
    plan::Program program = plan::assign_formats(*graph, policy);
    program.update = std::make_shared<const plan::Program>(
        plan::assign_update(update_graph(source, policy).graph, policy, program));
    return program;
  };
}

namespace {

/// Replaces the update of `part`, that of all parameters, by that of those which its rank owns.
void share_part(RunPart& part, plan::Program& program, UpdateSource source, const runtime::Device& device) {
  part.whole = std::make_shared<plan::Program>(program);
  plan::share_weights(program, part.sharing);
  std::erase_if(source.parameters, [&](const optim::Parameter& p) {
    const auto slot = std::ranges::find(program.slots, p.name, &plan::Slot::name);
    return !part.sharing.owns(static_cast<std::size_t>(slot - program.slots.begin()));
  });
  part.numbers = add_update(program, source, device);
  auto own = std::make_shared<plan::Program>(*program.update);
  own->unmatched_rules = part.whole->update->unmatched_rules;  // those of all parameters
  own->places = part.whole->update->places;
  program.update = std::move(own);
}

}  // namespace

std::vector<RunPart> compile_parts(const config::RunConfig& config, const model::ModelConfig& model,
                                   const runtime::Device& device, RankOf rank) {
  rank.parts = static_cast<int>(config.distributed.sequence_shards);
  rank.ranks = std::max(rank.ranks, rank.parts);
  std::vector<RunPart> parts;
  for (std::size_t stage = 0; stage < config::stage_count(config); ++stage) {
    const config::RunConfig own = config::stage_config(config, stage);
    const model::ModelConfig own_model = config::stage_model(config, model, stage);
    const std::int64_t begin = config::first_step(config, stage), end = begin + own.run.steps;
    std::vector<std::int64_t> firsts = {begin};
    for (const std::int64_t step : config.policy.changes()) {
      if (begin < step && step < end) firsts.push_back(step);
    }
    const UpdateSource source = update_source(own, own_model, config.run.steps);
    for (const std::int64_t first : firsts) {
      auto program = std::make_shared<plan::Program>(
          compile_alone(own, own_model, own.batch.micro_batch_size, device, true, true, first));
      std::vector<optim::Number> numbers = add_update(*program, source, device);
      RunPart& part = parts.emplace_back(RunPart{first, stage, program, std::move(numbers), own.log.observe});
      part.whole = program;
      part.rank = rank;
      const config::DistributedSection& distributed = config.distributed;
      if (rank.ranks == 1 || distributed.zero == 0) continue;
      const bool streams = own.batch.global_batch_size == own.batch.shards * own.batch.micro_batch_size;
      // The weights of an adapter are few beside its base, which every rank has.
      const std::int64_t most = model.adapter != nullptr ? 2 : 3;
      part.sharing = {rank.rank, std::min(distributed.zero, most), distributed.persistence_threshold, streams,
                      parts.front().sharing.divides() ? parts.front().sharing.owners
                                                      : plan::owners_of(*program, rank.ranks)};
      share_part(part, *program, source, device);
    }
  }
  return parts;
}

std::size_t largest_arena(std::span<const RunPart> parts) {
  std::size_t most = 0;
  for (const RunPart& part : parts) most = std::max(most, part.program->memory.arena());
  return most;
}

}  // namespace mantissa::programs
