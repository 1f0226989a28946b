// Keys of [optimizer] that every optimizer takes, and what an optimizer may know of its run.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "mantissa/engine/optim/optimizer.h"

namespace mantissa::optim {

/// The decay of the average of the weights; 0: no average.
inline constexpr std::string_view kEmaDecay = "ema_decay";

/// Returns the settings that every optimizer takes besides its own.
std::span<const SettingDef> common_settings();

/// Returns the setting `key` of `optimizer`, its own or a common one, or null.
const SettingDef* find_setting(const Optimizer& optimizer, std::string_view key);

/// What a rule may know of the run. Optimizer::check and Optimizer::update find it among the settings, where
/// no key of [optimizer] has a dot.
struct RunFacts {
  bool constant_rate = true;      // after the warm-up, in all of the run
  std::int64_t warmup_steps = 0;  // updates in which the rate rises from 0 in equal steps
  std::int64_t steps = 1;         // of the run
};
Settings with_facts(Settings settings, const RunFacts& facts);
/// Returns the facts among `settings`, or the defaults.
RunFacts facts_of(const Settings& settings);

}  // namespace mantissa::optim
