#include "mantissa/engine/optim/common_settings.h"

#include <algorithm>

namespace mantissa::optim {
namespace {

constexpr std::string_view kConstantRate = "run.constant_rate", kWarmupSteps = "run.warmup_steps",
                           kSteps = "run.steps";

template <class T>
T fact(const Settings& settings, std::string_view key, T fallback) {
  const auto found = settings.find(key);
  return found == settings.end() ? fallback : std::get<T>(found->second);
}

}  // namespace

std::span<const SettingDef> common_settings() {
  static const SettingDef kAll[] = {
      {kEmaDecay, 0.0,
       "decay of an exponential moving average (EMA) of the weights, which validation, eval and the saved model "
       "read in their place; 0: none",
       0, 1, false, true}};
  return kAll;
}

const SettingDef* find_setting(const Optimizer& optimizer, std::string_view key) {
  for (const std::span<const SettingDef> all :
       {std::span<const SettingDef>(optimizer.settings), common_settings()}) {
    const auto found = std::ranges::find(all, key, &SettingDef::key);
    if (found != all.end()) return &*found;
  }
  return nullptr;
}

Settings with_facts(Settings settings, const RunFacts& facts) {
  settings.insert_or_assign(std::string(kConstantRate), facts.constant_rate);
  settings.insert_or_assign(std::string(kWarmupSteps), facts.warmup_steps);
  settings.insert_or_assign(std::string(kSteps), facts.steps);
  return settings;
}

RunFacts facts_of(const Settings& settings) {
  const RunFacts defaults;
  return {fact(settings, kConstantRate, defaults.constant_rate),
          fact(settings, kWarmupSteps, defaults.warmup_steps), fact(settings, kSteps, defaults.steps)};
}

}  // namespace mantissa::optim
