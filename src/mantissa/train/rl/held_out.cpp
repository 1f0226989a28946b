#include "mantissa/train/rl/held_out.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "mantissa/core/base/error.h"
#include "mantissa/generate/dialog/turn_end.h"
#include "mantissa/generate/rollout/complete.h"
#include "mantissa/text/reward/rule.h"
#include "mantissa/train/rl/model_rule.h"
#include "mantissa/train/rl/ranks.h"
#include "mantissa/train/rl/scoring.h"

namespace mantissa::rl {
namespace {

/// Returns the rule of the config, which all of `ranks` (null: one) call alike.
std::unique_ptr<reward::Rule> rule_of(const Prepared& p, const weights::ModelSource& source,
                                      const std::vector<std::int32_t>& ends, const runtime::Device& device,
                                      comm::Communicator* ranks) {
  if (reward::is_model(p.config.rl.reward)) {
    auto rule = std::make_unique<ModelRule>(p.config, source.config, *p.prompts, ends, device);
    if (ranks != nullptr) rule->model().share(*ranks);
    rule->model().bind(std::make_shared<runtime::Arena>(rule->model().program().memory.arena(), device));
    return rule;
  }
  std::unique_ptr<reward::Rule> rule;
  if (ranks == nullptr || ranks->leads())
    rule = reward::make_rule(p.config.rl.reward, {.timeout = p.config.rl.reward_timeout});
  return ranks == nullptr ? std::move(rule) : shared_rule(*ranks, std::move(rule));
}

}  // namespace

HeldOutAnswers answer_held_out(const config::RunConfig& config, const weights::ModelSource& source,
                               const precision::Policy& policy, std::int64_t count,
                               const runtime::Device& device, const std::stop_token& stop,
                               comm::Communicator* ranks) {
  constexpr std::int64_t kMostStreams = 16;
  Prepared p = prepare(config, source.config);
  const std::int64_t held_out = p.prompts->held_out_count();
  if (held_out == 0) {
    throw ConfigError(
        "data.validation is 0: no prompts are held out. Fix: --set data.validation=FILES with other prompts");
  }
  check_allowed(config);
  std::vector<data::Prompt> prompts;
  std::vector<rollout::Request> requests;
  for (std::int64_t i = 0; i < (count > 0 ? std::min(count, held_out) : held_out); ++i) {
    prompts.push_back(p.prompts->held_out(i));
    requests.push_back({prompts.back().ids, i});
  }
  const std::vector<std::int32_t> ends = response_ends(p.config, source, *p.prompts);
  rollout::GenerateOptions options;
  options.max_new_tokens = p.config.rl.max_new_tokens;
  options.stop = ends;
  options.on_token = dialog::until_turn_ends(p.prompts->tokenizer(), p.prompts->format(), requests.size());
  options.name_of = [&](std::size_t i) { return "eval: the response to " + prompts[i].where; };
  options.interrupt = stop;
  options.sampling.seed = options.rounding_seed = p.config.run.seed;
  const std::vector<rollout::Generation> made =
      rollout::complete(source, policy, requests, options, kMostStreams, device, ranks);
  HeldOutAnswers answers{{}, !std::ranges::all_of(made, &rollout::Generation::ended), std::move(p.notes)};
  if (answers.interrupted) return answers;
  const std::unique_ptr<reward::Rule> rule = rule_of(p, source, ends, device, ranks);
  std::optional<std::vector<Sampled>> scored =
      score_responses(*p.prompts, prompts, 1, made, ends, *rule, stop);
  answers.interrupted = ranks != nullptr ? ranks->any(!scored) : !scored;
  if (!answers.interrupted) answers.samples = std::move(*scored);
  return answers;
}

}  // namespace mantissa::rl
