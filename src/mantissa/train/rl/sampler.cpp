#include "mantissa/train/rl/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "mantissa/core/base/error.h"
#include "mantissa/engine/runtime/process.h"
#include "mantissa/generate/dialog/turn_end.h"
#include "mantissa/setup/config/adapter.h"
#include "mantissa/setup/programs/decoding.h"
#include "mantissa/train/rl/ranks.h"
#include "mantissa/train/steps/gathered_objective.h"

namespace mantissa::rl {
namespace {

/// Returns the cures of a run whose sampling stopped, from those of sampling alone. Under a policy of its own
/// for sampling, they change that policy, and the first is to sample under the policy in training.
std::vector<Cure> cures_of_sampling(const std::vector<Cure>& sampling, const std::string& rollout_precision) {
  std::vector<Cure> cures;
  const auto add = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "--resume");
    cures.push_back({std::move(arguments)});
  };
  const bool own = !rollout_precision.empty();
  if (own) add({"--set", "rl.rollout_precision="});
  for (const Cure& cure : sampling) {
    for (std::size_t i = 0; own && i + 1 < cure.arguments.size(); ++i) {
      const std::string& value = cure.arguments[i + 1];
      if (cure.arguments[i] == "--rule")
        add({"--set", fmt::format("rl.rollout_precision={}; {}", rollout_precision, value)});
      if (cure.arguments[i] == "--precision") add({"--set", "rl.rollout_precision=" + value});
    }
    if (!own) add(cure.arguments);
  }
  return cures;
}

}  // namespace

precision::Policy sampling_policy(const config::RunConfig& config, std::int64_t step) {
  const precision::Policy training = config.policy.at_step(step);
  if (config.rl.rollout_precision.empty()) return training;
  precision::Policy sampling = precision::Policy::parse(config.rl.rollout_precision);
  precision::Fields fields = sampling.fields();
  fields.params = training.fields().params;
  return sampling.with_fields(fields);
}

std::shared_ptr<const plan::Program> compile_sampling(const config::RunConfig& config,
                                                      const model::ModelConfig& model,
                                                      const runtime::Device& device, std::int64_t step) {
  constexpr std::size_t kShare = 4;  // of the machine's memory, as its inverse
  const precision::Policy policy = config::adapted_policy(sampling_policy(config, step), config.adapter);
  std::int64_t streams = config.rl.prompts_per_step * config.rl.samples_per_prompt;
  for (;; streams = (streams + 1) / 2) {
    auto program = programs::compile_decode(model, policy, config.data.sequence_length, device, streams);
    if (streams == 1 || program->memory.arena() <= runtime::machine_memory_bytes() / kShare) return program;
  }
}

Sampler::Sampler(const config::RunConfig& config, const model::ModelConfig& model,
                 std::shared_ptr<const data::PromptSet> prompts, std::vector<std::int32_t> ends,
                 const runtime::Device& device)
    : config_(config), model_(model), prompts_(std::move(prompts)), ends_(std::move(ends)), device_(device) {
  begin_part(0);
}

void Sampler::begin_part(std::int64_t step) {
  session_.reset();
  program_ = compile_sampling(config_, model_, device_, step);
}

void Sampler::bind(std::shared_ptr<runtime::WeightSet> weights, std::shared_ptr<runtime::Arena> arena) {
  session_.reset();
  if (weights != nullptr) session_.emplace(program_, std::move(weights), std::move(arena));
}

std::optional<std::vector<rollout::Generation>> Sampler::respond(
    std::span<const rollout::Request> requests, bool greedy,
    const std::function<std::string(std::size_t)>& name_of, const std::stop_token& stop) {
  if (ranks_ == nullptr) return respond_here(requests, 0, greedy, name_of, stop);
  const train::Share own = train::share_of(ranks_->rank(), ranks_->size(), std::ssize(requests), 1);
  const auto first = static_cast<std::size_t>(own.first), end = static_cast<std::size_t>(own.end);
  std::vector<rollout::Generation> made;
  on_all(*ranks_, [&] {
    if (first < end)
      made = respond_here(requests.subspan(first, end - first), first, greedy, name_of, stop).value();
  });
  return gathered(*ranks_, made);
}

std::optional<std::vector<rollout::Generation>> Sampler::respond_here(
    std::span<const rollout::Request> requests, std::size_t first, bool greedy,
    const std::function<std::string(std::size_t)>& name_of, const std::stop_token& stop) {
  session_->weights().scales().record(false);
  rollout::GenerateOptions options;
  options.max_new_tokens = config_.rl.max_new_tokens;
  options.stop = ends_;
  options.on_token = dialog::until_turn_ends(prompts_->tokenizer(), prompts_->format(), requests.size());
  options.entropies = !greedy;
  options.name_of = [&](std::size_t r) {
    return fmt::format("{}, sampled under \"{}\"", name_of(first + r), program_->policy.short_line());
  };
  options.interrupt = stop;
  options.sampling.seed = options.rounding_seed = config_.run.seed;
  if (!greedy) {
    options.sampling.temperature = config_.rl.temperature;
    options.sampling.top_p = config_.rl.top_p;
  }
  try {
    std::vector<rollout::Generation> all = rollout::generate(*session_, model_, requests, options);
    if (stop.stop_requested()) return std::nullopt;
    return all;
  } catch (const RunStopped& e) {
    throw RunStopped(e.message(), cures_of_sampling(e.cures(), config_.rl.rollout_precision));
  }
}

}  // namespace mantissa::rl
