#include "mantissa/train/run/cures.h"

#include <algorithm>
#include <cmath>

#include "mantissa/core/base/words.h"
#include "mantissa/engine/runtime/process.h"
#include "mantissa/files/io/state.h"
#include "mantissa/setup/config/ranks.h"
#include "mantissa/train/run/directory.h"

namespace mantissa::run {
namespace {

constexpr std::int64_t kApplied = 3;     // steps that a cure must complete, or the patience if that is more
constexpr std::int64_t kSearching = 4;   // steps that a dynamic loss scale may skip before that
constexpr int kMostJoined = 3;           // rules that join the first
constexpr std::int64_t kFromStart = 20;  // steps that a replay from the beginning may need before the stop

bool has(const Cure& cure, std::string_view argument) {
  return std::ranges::find(cure.arguments, argument) != cure.arguments.end();
}

bool starts_over(const Cure& cure) {
  return has(cure, "--overwrite");
}

bool can_try(const Cure& cure, const Replay& replay) {
  const bool alternative = !cure.effect.empty() && !starts_over(cure);  // it hides the problem, and tells so
  return !alternative && (!starts_over(cure) || replay.stopped <= kFromStart);
}

/// Returns the config of a replay with the cure.
config::RunConfig replayed(const config::RunConfig& config, const Cure& cure) {
  // A single overflow of the forward pass is enough to show that the cure fails.
  const std::string impatient = "precision.loss_scale.forward_overflow_patience=1",
                    no_health = "log.health_interval=0";
  config::RunConfig changed = with_cure(config, cure, {no_health});
  if (config::scaler_options(changed)) changed = with_cure(config, cure, {no_health, impatient});
  config::use_whole_rows(changed);  // one process runs them
  return changed;
}

/// Returns the error of a step that changed no weight, with the rule for the value that was not finite.
RunStopped skipped_step(const train::StepReport& step) {
  std::vector<Cure> cures;
  if (step.overflow && !step.overflow->cure.empty()) {
    std::vector<std::string> arguments = step.overflow->cure;
    arguments.insert(arguments.begin(), "--resume");
    cures.push_back({std::move(arguments)});
  }
  return RunStopped("a step was skipped", std::move(cures));
}

/// Runs the steps from `trainer`'s up to the failed one, and then until enough steps were applied. Throws
/// RunStopped if one of them fails.
void run_steps(train::Trainer& trainer, const Replay& replay, const std::stop_token& stop) {
  const std::int64_t needed = std::max(kApplied, replay.config.loss_scale.forward_overflow_patience);
  std::int64_t applied = 0, searching = 0;
  while (trainer.step() < replay.config.run.steps && applied < needed) {
    const bool repeats = trainer.step() + 1 < replay.stopped;  // a step that the run completed
    const std::optional<train::StepReport> r = trainer.advance(stop);
    if (!r) return;
    if (r->batch_skipped || (repeats && r->skipped)) continue;
    if (!r->skipped) {
      if (!std::isfinite(r->loss)) throw RunStopped("the loss is not finite");
      applied += repeats ? 0 : 1;
      searching = 0;
      continue;
    }
    const std::optional<precision::LossScaler>& scaler = trainer.scaler();
    const bool adapts = scaler && scaler->options().rule != precision::ScalerRule::constant;
    const bool last = trainer.step() == replay.config.run.steps;
    const bool backward = r->overflow && !r->overflow->forward;
    if (!adapts || !backward || last || ++searching > kSearching) throw skipped_step(*r);
  }
}

/// Runs a few steps with the cure. Returns the error with which the run stops, or null.
std::optional<RunStopped> replay_with(const Cure& cure, const Replay& replay, const std::stop_token& stop) {
  try {
    std::optional<io::StateReader> state;
    if (!replay.state.empty() && !starts_over(cure)) state.emplace(replay.state);
    const config::RunConfig config = replayed(replay.config, cure);
    train::Trainer trainer(config, replay.source, replay.task.again(config), replay.device,
                           state ? state->header().step : 0);
    if (state) restore(trainer, *state, replay.state);
    run_steps(trainer, replay, stop);
    if (replay.validates) {
      const std::optional<train::Validation> held_out = trainer.validate(stop);
      if (held_out && held_out->loss && !std::isfinite(*held_out->loss))
        return RunStopped("the loss on held-out rows is not finite");
    }
    return std::nullopt;
  } catch (const RunStopped& e) {
    return e;
  } catch (const Error& e) {  // such as a weight that the new format cannot hold
    return RunStopped(e.message());
  }
}

/// Appends the rules of the first cure of `stopped` with a rule. Returns false if `cure` already has all of
/// them.
bool join_rules(Cure& cure, const RunStopped& stopped) {
  if (!has(cure, "--rule")) return false;
  for (const Cure& next : stopped.cures()) {
    if (!next.effect.empty() || !has(next, "--rule")) continue;
    bool added = false;
    for (std::size_t i = 0; i + 1 < next.arguments.size(); ++i) {
      if (next.arguments[i] != "--rule" || has(cure, next.arguments[i + 1])) continue;
      cure.arguments.push_back("--rule");
      cure.arguments.push_back(next.arguments[i + 1]);
      added = true;
    }
    return added;
  }
  return false;
}

/// Returns the cure with its first rule for the whole model, or null if that has no scope.
std::optional<Cure> for_all_scopes(const Cure& cure) {
  const auto option = std::ranges::find(cure.arguments, "--rule");
  if (option == cure.arguments.end()) return std::nullopt;
  std::string rule = *(option + 1);
  if (rule.starts_with("{match = \"")) {
    const std::size_t scope = rule.find('"') + 1;
    rule.replace(scope, rule.find('"', scope) - scope, "*");
    return Cure{{"--resume", "--rule", rule}};
  }
  const std::size_t colon = rule.find(": ");
  if (colon == std::string::npos) return std::nullopt;
  return Cure{{"--resume", "--rule", "*" + rule.substr(colon)}};
}

}  // namespace

config::RunConfig with_cure(const config::RunConfig& config, const Cure& cure,
                            std::vector<std::string> overrides) {
  config::PrecisionArguments precision;
  for (std::size_t i = 0; i + 1 < cure.arguments.size(); ++i) {
    const std::string &option = cure.arguments[i], &value = cure.arguments[i + 1];
    if (option == "--set") overrides.push_back(value);
    if (option == "--rule") precision.rules.push_back(value);
    if (option == "--precision") precision.policy = value;
  }
  return config::parse_config(config.to_toml(), "config.toml", overrides, precision);
}

Tried tried(const std::vector<Cure>& cures, const Replay& replay, const std::stop_token& stop) {
  Tried result;
  const bool repeats = replay.task.repeats();
  const text::Dataset* data = replay.task.dataset();
  const std::size_t data_bytes = data == nullptr ? 0 : data->bytes();
  const auto parts = static_cast<std::size_t>(replay.config.distributed.sequence_shards);
  const bool fits = (1 + parts) * (replay.used_bytes + data_bytes) <= runtime::machine_memory_bytes();
  std::vector<Cure> untried;
  const auto tell_untried = [&](Cure cure) {
    if (cure.effect.empty() || starts_over(cure))
      cure.effect += cure.effect.empty() ? "not tried" : "; not tried";
    untried.push_back(std::move(cure));
  };
  const auto attempt = [&](Cure cure) {
    const Cure alone = cure;
    std::optional<RunStopped> stopped = replay_with(cure, replay, stop);
    for (int joined = 0; stopped && joined < kMostJoined && join_rules(cure, *stopped); ++joined)
      stopped = replay_with(cure, replay, stop);
    if (const std::optional<Cure> all = stopped ? for_all_scopes(alone) : std::nullopt) {
      cure = *all;
      stopped = replay_with(cure, replay, stop);
    }
    if (stop.stop_requested()) return tell_untried(alone);
    if (stopped) return result.failed.push_back(alone);
    cure.tested = true;
    result.cures.push_back(std::move(cure));
  };
  for (const Cure& cure : cures) {
    if (repeats && fits && can_try(cure, replay)) {
      attempt(cure);
    } else {
      tell_untried(cure);
    }
  }
  const Cure plain{{"--resume", "--precision", "32-true"}};
  const bool has_plain = std::ranges::find(cures, plain.arguments, &Cure::arguments) != cures.end();
  if (result.cures.empty() && !result.failed.empty() && !has_plain) attempt(plain);
  result.cures.insert(result.cures.end(), untried.begin(), untried.end());
  return result;
}

std::string failed_text(const std::vector<Cure>& failed) {
  std::string text;
  for (const Cure& cure : failed) {
    std::vector<std::string> arguments = cure.arguments;
    std::erase(arguments, "--resume");
    std::erase(arguments, "--overwrite");
    text += (text.empty() ? "" : ", ") + shell_words(arguments);
  }
  return text;
}

}  // namespace mantissa::run
