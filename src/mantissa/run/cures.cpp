#include "mantissa/run/cures.h"

#include <algorithm>

#include "mantissa/io/state.h"
#include "mantissa/run/directory.h"
#include "mantissa/runtime/process.h"

namespace mantissa::run {
namespace {

constexpr std::int64_t kSteps = 3;  // that a cure must survive
constexpr int kMostJoined = 3;      // rules that join the first

bool has(const Cure& cure, std::string_view argument) {
  return std::ranges::find(cure.arguments, argument) != cure.arguments.end();
}

bool can_try(const Cure& cure) {
  return cure.effect.empty() && has(cure, "--resume");
}

/// Returns the config of a replay with the cure.
config::RunConfig replayed(const config::RunConfig& config, const Cure& cure) {
  // A single overflow of the forward pass is enough to show that the cure fails.
  const std::string impatient = "precision.loss_scale.forward_overflow_patience=1",
                    no_health = "log.health_interval=0";
  const config::RunConfig changed = with_cure(config, cure, {no_health});
  return config::scaler_options(changed) ? with_cure(config, cure, {no_health, impatient}) : changed;
}

/// Runs a few steps with the cure. Returns the error with which the run stops, or null.
std::optional<RunStopped> replay_with(const Cure& cure, const Replay& replay, const std::stop_token& stop) {
  try {
    std::optional<io::StateReader> state;
    if (!replay.state.empty()) state.emplace(replay.state);
    train::Trainer trainer(replayed(replay.config, cure), replay.source, replay.data, replay.device,
                           state ? state->header().step : 0);
    if (state) restore(trainer, *state, replay.state);
    const std::int64_t last = std::min(trainer.step() + kSteps, replay.config.run.steps);
    while (trainer.step() < last && trainer.advance(stop)) {
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
    if (!can_try(next) || !has(next, "--rule")) continue;
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

/// Returns the cure with its first rule for the whole model, or null if its rules are no "SCOPE: fields".
std::optional<Cure> for_all_scopes(const Cure& cure) {
  const auto option = std::ranges::find(cure.arguments, "--rule");
  if (option == cure.arguments.end()) return std::nullopt;
  const std::string& rule = *(option + 1);
  const std::size_t colon = rule.find(": ");
  if (colon == std::string::npos || rule.front() == '{') return std::nullopt;
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

std::vector<Cure> tried(const std::vector<Cure>& cures, const Replay& replay, const std::stop_token& stop) {
  const bool repeats = replay.data.training_rows() > 0;  // rows from a callback may come only once
  if (!repeats || 2 * (replay.used_bytes + replay.data.bytes()) > runtime::machine_memory_bytes())
    return cures;
  std::vector<Cure> good, failed;
  for (Cure cure : cures) {
    if (!can_try(cure)) {
      good.push_back(std::move(cure));
      continue;
    }
    const Cure alone = cure;
    std::optional<RunStopped> stopped = replay_with(cure, replay, stop);
    for (int joined = 0; stopped && joined < kMostJoined && join_rules(cure, *stopped); ++joined)
      stopped = replay_with(cure, replay, stop);
    if (const std::optional<Cure> all = stopped ? for_all_scopes(alone) : std::nullopt) {
      cure = *all;
      stopped = replay_with(cure, replay, stop);
    }
    if (!stopped) {
      cure.tested = !stop.stop_requested();
      good.push_back(std::move(cure));
    } else if (has(alone, "--rule")) {
      failed.push_back(alone);
      failed.back().effect = "tried: not enough alone";
    }
  }
  good.insert(good.end(), failed.begin(), failed.end());
  return good;
}

}  // namespace mantissa::run
