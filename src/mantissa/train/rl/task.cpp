#include "mantissa/train/rl/task.h"
#include "mantissa/train/rl/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/setup/config/post_training.h"
#include "mantissa/setup/objective/settings.h"
#include "mantissa/setup/programs/training.h"
#include "mantissa/text/reward/rule.h"
#include "mantissa/text/rows/permutation.h"
#include "mantissa/train/rl/experience.h"
#include "mantissa/train/rl/model_rule.h"
#include "mantissa/train/rl/rl_objective.h"
#include "mantissa/train/rl/sampler.h"
#include "mantissa/train/rl/scores.h"
#include "mantissa/train/rl/scoring.h"
#include "mantissa/train/steps/fixed_model.h"

namespace mantissa::rl {
namespace {

using objective::Metric;

/// Throws unless the sampling program's masters are those of training.
void check_masters(const plan::Program& sampling, const plan::Program& training) {
  for (const plan::Slot& slot : sampling.slots) {
    const auto same = std::ranges::find(training.slots, slot.name, &plan::Slot::name);
    if (same == training.slots.end() || same->master == slot.master) continue;
    throw ConfigError(
        "rl.rollout_precision: {} is {} there and {} in training, and both use the weights in "
        "place. Fix: remove the rules for params",
        slot.name, name(slot.master), name(same->master));
  }
}

class RlTask final : public train::Task {
 public:
  RlTask(const config::RunConfig& config, const weights::ModelSource& source,
         std::shared_ptr<const data::PromptSet> prompts, OnRollout on_rollout, const runtime::Device& device,
         MakeRule make_rule)
      : config_(config),
        source_(source),
        prompts_(std::move(prompts)),
        on_rollout_(std::move(on_rollout)),
        make_rule_(std::move(make_rule)),
        device_(device),
        settings_(objective::rl_settings(config.rl)),
        objective_(settings_),
        sampler_(config, source.config, prompts_, response_ends(config, source, *prompts_), device) {
    if (!config.rl.rollout_precision.empty()) {
      if (source.config.adapter != nullptr) {
        throw ConfigError(
            "rl.rollout_precision: not available with an adapter, whose base is held in one format. Fix: "
            "remove it, or train all weights with adapter.kind = \"none\"");
      }
    }
    if (computes_old()) compile_old(0);
    if (settings_.needs_reference()) {
      if (config.rl.reference == "none") {
        throw ConfigError(
            "rl.reference = \"none\": rl.kl needs a reference. Fix: set rl.kl = \"none\" too, or name a "
            "model");
      }
      reference_.emplace(config, source, config.rl.reference, device);
    }
    if (make_rule_) return;
    reward::check_rule(config.rl.reward);
    if (!reward::is_model(config.rl.reward)) return;
    const std::span<const std::int32_t> ends = sampler_.ends();
    model_rule_.emplace(config, source.config, *prompts_, std::vector(ends.begin(), ends.end()), device);
  }

  const std::string& name() const override { return name_; }
  void share(comm::Communicator& ranks) override {
    ranks_ = &ranks;
    sampler_.share(ranks);
    if (old_) old_->share(ranks_);
    if (reference_) reference_->share(ranks);
    if (model_rule_) model_rule_->model().share(ranks);
  }
  objective::Objective& objective() override { return objective_; }

  std::optional<text::StepData> step(std::int64_t step, std::int64_t items,
                                     const std::stop_token& stop) override {
    const std::int64_t per_rollout = config::steps_per_rollout(config_.rl);
    const std::int64_t rollout = (step - 1) / per_rollout, nth = (step - 1) % per_rollout;
    const bool fresh = nth == 0;
    if (fresh || experience_.rollout != rollout) {
      std::optional<Experience> next = collect(rollout, step, stop);
      if (!next) return std::nullopt;
      experience_ = std::move(*next);
      scored_before_ = scored_;
      scored_ = rule().position();
      collected_for_ = step;
    }
    const std::int64_t epoch = nth / config_.rl.minibatches, part = nth % config_.rl.minibatches;
    std::vector<std::size_t> order = rows_of_step(rollout, epoch, part * items, items);
    text::StepData rows = rows_of(experience_, order, config_.data.sequence_length);
    // In the first epoch, a row has the key of the random numbers of its sampling.
    rows.sequence = static_cast<std::uint64_t>(rollout * responses() + part * items);
    objective_.set_rows(experience_, std::move(order), fresh);
    return rows;
  }

  std::optional<text::StepData> held_out(std::int64_t /*step*/, const std::stop_token& /*stop*/) override {
    return std::nullopt;
  }

  bool measures_start() const override { return prompts_->held_out_count() > 0; }

  std::vector<Metric> measure(std::int64_t step, const std::stop_token& stop) override {
    std::vector<data::Prompt> prompts;
    for (std::int64_t i = 0; i < prompts_->held_out_count(); ++i) prompts.push_back(prompts_->held_out(i));
    if (prompts.empty()) return {};
    const std::string when =
        step == 0 ? "validation before the first step" : fmt::format("validation after step {}", step);
    const auto made = respond(prompts, {.samples = 1, .first = 0, .greedy = true, .when = when}, stop);
    if (!made) return {};
    const auto samples = score(prompts, 1, *made, when, stop);
    if (!samples) return {};
    scored_ = rule().position();
    return metrics_of(*samples, 1);
  }

  std::vector<const plan::Program*> begin_part(std::int64_t step) override {
    if (step != part_) {
      sampler_.begin_part(step);
      if (old_) compile_old(step);
      if (reference_) reference_->begin_part(step);
      if (model_rule_) model_rule_->model().begin_part(step);
      part_ = step;
    }
    std::vector<const plan::Program*> programs = {&sampler_.program()};
    if (old_) programs.push_back(&old_->program());
    return programs;
  }

  void bind(std::shared_ptr<runtime::WeightSet> weights, std::shared_ptr<runtime::Arena> arena) override {
    if (weights != nullptr) check_masters(sampler_.program(), weights->program());
    if (reference_) reference_->bind(weights, arena);
    if (model_rule_) model_rule_->model().bind(arena);
    if (old_) old_->bind(weights, arena);
    sampler_.bind(std::move(weights), std::move(arena));
  }

  train::TaskMemory memory() const override {
    train::TaskMemory memory = Task::memory();
    memory.data = prompts_->bytes();
    return memory;
  }

  std::vector<forecast::OtherPass> passes() const override {
    const double tokens = static_cast<double>(responses() * config_.rl.max_new_tokens) /
                          static_cast<double>(config::steps_per_rollout(config_.rl));
    const double runs = 1 / static_cast<double>(config_.rl.epochs);
    std::vector<forecast::OtherPass> all = {{.program = sampler_.shared_program(),
                                             .weights = 0,
                                             .runs = 0,
                                             .generated = tokens,
                                             .name = "the rollouts"}};
    if (old_) {
      all.push_back(
          {.program = old_->shared_program(), .runs = runs, .name = "the log-probabilities before a step"});
    }
    if (reference_) {
      all.push_back({.program = reference_->shared_program(),
                     .weights = reference_->bytes(),
                     .runs = runs,
                     .name = "the reference"});
    }
    if (model_rule_) {
      const train::FixedModel& model = model_rule_->model();
      all.push_back({.program = model.shared_program(),
                     .weights = model.bytes(),
                     .runs = runs,
                     .name = "the reward model"});
    }
    return all;
  }

  std::unique_ptr<train::Task> again(const config::RunConfig& config) const override {
    return task(config, source_, prompts_, {}, device_);
  }
  bool repeats() const override { return !reward::runs_program(config_.rl.reward); }

  train::TaskState save(std::int64_t step) const override {
    train::TaskState state;
    // A rollout for the next step, which a stop interrupted, will be scored again.
    state.counters["scored"] =
        static_cast<std::uint64_t>(collected_for_ == step + 1 ? scored_before_ : scored_);
    rl::save(experience_, state);
    return state;
  }

  void restore(std::int64_t /*step*/, const train::TaskState& state) override {
    experience_ = rl::restore(state);
    const auto scored = state.counters.find("scored");
    scored_ = scored == state.counters.end() ? 0 : static_cast<std::int64_t>(scored->second);
    collected_for_ = 0;
    rule_.reset();
  }

 private:
  std::int64_t responses() const { return config_.rl.prompts_per_step * config_.rl.samples_per_prompt; }

  void compile_old(std::int64_t step) {
    old_.emplace(std::make_shared<const plan::Program>(programs::compile_log_probs(
                     config_, source_.config, device_, step, settings_.needs_values())),
                 config_);
    old_->share(ranks_);
  }

  /// Returns true if passes before the optimizer steps compute what sampling does not: log-probabilities of
  /// another policy, and values.
  bool computes_old() const { return !config_.rl.rollout_precision.empty() || settings_.needs_values(); }

  /// Starts the rule when it is needed first, so that a resumed run's program starts where it continues.
  reward::Rule& rule() {
    if (model_rule_) return *model_rule_;
    if (rule_ == nullptr) {
      if (!make_rule_) check_allowed(config_);
      if (ranks_ == nullptr || ranks_->leads()) {
        rule_ = make_rule_ ? make_rule_()
                           : reward::make_rule(config_.rl.reward,
                                               {.timeout = config_.rl.reward_timeout, .position = scored_});
      }
      if (ranks_ != nullptr) rule_ = shared_rule(*ranks_, std::move(rule_));
    }
    return *rule_;
  }

  /// Returns responses [first, first + count) of an epoch over a rollout: in order in the first epoch, then
  /// in a random one.
  std::vector<std::size_t> rows_of_step(std::int64_t rollout, std::int64_t epoch, std::int64_t first,
                                        std::int64_t count) const {
    std::vector<std::size_t> order(experience_.responses.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (epoch > 0) {
      const auto key = static_cast<std::uint64_t>(rollout * config_.rl.epochs + epoch);
      const text::Permutation shuffled(order.size(), config_.run.seed, key);
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::size_t>(shuffled(i));
    }
    return {order.begin() + first, order.begin() + first + count};
  }

  struct Asked {
    std::int64_t samples = 1;  // of each prompt
    std::int64_t first = 0;    // the key of the first response's random numbers
    bool greedy = false;
    std::string when;  // "step 3", for messages
  };
  std::optional<std::vector<rollout::Generation>> respond(const std::vector<data::Prompt>& prompts,
                                                          const Asked& asked, const std::stop_token& stop) {
    std::vector<rollout::Request> requests;
    for (const data::Prompt& prompt : prompts) {
      for (std::int64_t s = 0; s < asked.samples; ++s)
        requests.push_back({prompt.ids, asked.first + static_cast<std::int64_t>(requests.size())});
    }
    const auto samples = static_cast<std::size_t>(asked.samples);
    const auto name_of = [&](std::size_t r) {
      const std::string& where = prompts[r / samples].where;
      if (samples == 1) return fmt::format("{}: the response to {}", asked.when, where);
      return fmt::format("{}: response {} of {} to {}", asked.when, r % samples + 1, samples, where);
    };
    return sampler_.respond(requests, asked.greedy, name_of, stop);
  }

  /// Scores the responses, `samples` to each prompt. Null if a stop came first. `when` is for messages.
  std::optional<std::vector<Sampled>> score(const std::vector<data::Prompt>& prompts, std::int64_t samples,
                                            const std::vector<rollout::Generation>& made,
                                            const std::string& when, const std::stop_token& stop) {
    try {
      return score_responses(*prompts_, prompts, samples, made, sampler_.ends(), rule(), stop);
    } catch (const ProgramFailed& e) {
      throw ProgramFailed("{}: {}", when, e.message());
    } catch (const RunStopped& e) {
      throw RunStopped("{}: {}", when, e.message());
    }
  }

  std::optional<Experience> collect(std::int64_t rollout, std::int64_t step, const std::stop_token& stop) {
    const std::int64_t samples = config_.rl.samples_per_prompt;
    std::vector<data::Prompt> prompts;
    for (std::int64_t i = 0; i < config_.rl.prompts_per_step; ++i)
      prompts.push_back(prompts_->at(rollout, i));
    const std::string when = fmt::format("step {}", step);
    const auto made = respond(
        prompts, {.samples = samples, .first = rollout * responses(), .greedy = false, .when = when}, stop);
    if (!made) return std::nullopt;
    const auto sampled = score(prompts, samples, *made, when, stop);
    if (!sampled) return std::nullopt;
    Experience e{rollout, {}, metrics_of(*sampled, samples)};
    for (std::size_t i = 0; i < made->size(); ++i) {
      const auto group = static_cast<std::int64_t>(i) / samples;
      Response& r = e.responses.emplace_back();
      r.ids = prompts[static_cast<std::size_t>(group)].ids;
      r.prompt = static_cast<std::int64_t>(r.ids.size());
      r.ids.insert(r.ids.end(), (*made)[i].ids.begin(), (*made)[i].ids.end());
      r.group = group;
      r.origin = rollout * config_.rl.prompts_per_step + group;
      r.reward = (*sampled)[i].reward;
      r.rollout_log_probs = r.old_log_probs = (*made)[i].log_probs;
    }
    if (samples > 1) e.metrics.push_back({"equal_reward_share", equal_reward_share(*sampled, samples)});
    e.metrics.push_back({"entropy", mean_entropy(*made)});
    if (!add_passes(e, stop)) return std::nullopt;
    if (settings_.kl_in_reward()) e.metrics.push_back({"kl", mean_kl(e, settings_.kl)});
    add_advantages(e, settings_);
    if (on_rollout_) on_rollout_(step, *sampled);
    return e;
  }

  /// Computes the log-probabilities of the policy in training, if it is not that of sampling, and those of
  /// the reference. Returns false if a stop came first.
  bool add_passes(Experience& e, const std::stop_token& stop) {
    std::vector<std::size_t> order(e.responses.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    text::StepData rows = rows_of(e, order, config_.data.sequence_length);
    rows.sequence = static_cast<std::uint64_t>(e.rollout * responses());
    const auto assign = [&](const std::vector<double>& all, std::vector<double> Response::*to) {
      auto from = all.begin();
      for (Response& r : e.responses) {
        const auto inputs = static_cast<std::int64_t>(r.ids.size()) - 1;
        (r.*to).assign(from + (inputs - r.tokens()), from + inputs);
        from += inputs;
      }
    };
    if (old_) {
      const auto old = old_->of(rows, stop);
      if (!old) return false;
      assign(old->log_probs, &Response::old_log_probs);
      if (settings_.needs_values()) assign(old->values, &Response::values);
      if (!config_.rl.rollout_precision.empty())
        std::ranges::move(mismatch(e), std::back_inserter(e.metrics));
    }
    if (reference_) {
      const auto reference = reference_->of(rows, stop);
      if (!reference) return false;
      assign(reference->log_probs, &Response::ref_log_probs);
    }
    return true;
  }

  const config::RunConfig config_;
  weights::ModelSource source_;
  std::shared_ptr<const data::PromptSet> prompts_;
  OnRollout on_rollout_;
  MakeRule make_rule_;
  const runtime::Device& device_;
  objective::RlSettings settings_;
  RlObjective objective_;
  Sampler sampler_;
  std::optional<train::LogProbs> old_;  // under the policy in training, if it is not that of sampling
  std::optional<train::Reference> reference_;
  std::unique_ptr<reward::Rule> rule_;
  std::optional<ModelRule> model_rule_;  // of reward = "model", in place of rule_
  comm::Communicator* ranks_ = nullptr;  // null: this one alone
  // The samples that a reward program has scored, for rollouts and validations that were completed; before
  // the last rollout; and the first optimizer step on that rollout.
  std::int64_t scored_ = 0, scored_before_ = 0, collected_for_ = 0;
  std::int64_t part_ = 0;  // the first step of the part of the run
  Experience experience_;
  std::string name_ = "the prompts";
};

}  // namespace

std::unique_ptr<train::Task> task(const config::RunConfig& config, const weights::ModelSource& source,
                                  std::shared_ptr<const data::PromptSet> prompts, OnRollout on_rollout,
                                  const runtime::Device& device, MakeRule make_rule) {
  return std::make_unique<RlTask>(config, source, std::move(prompts), std::move(on_rollout), device,
                                  std::move(make_rule));
}

}  // namespace mantissa::rl
