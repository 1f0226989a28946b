// Shared by the files of this room; not installed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "mantissa/app/api/config.h"
#include "mantissa/app/api/data.h"
#include "mantissa/app/api/hardware.h"
#include "mantissa/app/api/model.h"
#include "mantissa/app/api/plan.h"
#include "mantissa/app/api/precision.h"
#include "mantissa/app/api/reward.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/data/rows.h"
#include "mantissa/setup/weights/adapted.h"
#include "mantissa/train/explain/explained.h"

namespace mantissa::reward {
class Rule;
}

namespace mantissa::api {

struct Config::Impl {
  config::RunConfig run;
  config::Told told;
};

/// Returns the requested threads, instruction set and device, checked against this machine.
std::shared_ptr<const runtime::Device> device_for(const Hardware& hardware, std::int64_t config_threads = 0,
                                                  int processes = 1);

/// Returns the policy of a command without a config (setup/config/command_policy.h).
precision::Policy policy_for(const Precision& precision, config::Told* told = nullptr, bool backward = false);

/// Returns the same for this model: its adapter and its base have the formats in which they were trained.
precision::Policy policy_for(const Precision& precision, const weights::ModelSource& source,
                             bool backward = false);

/// Returns a copy of `data`, which may be empty.
data::Memory memory_of(const Data& data);
bool in_memory(const Data& data);

/// Returns the model's config and the location of its weights. Throws FileError, ConfigError.
weights::ModelSource source_of(const Model& model);
/// Returns the format of a base in blocks by its name, or null for "params". Throws ConfigError for others.
std::optional<QuantFormat> base_named(const std::string& name);
/// Returns tensors that are read in place. Throws ConfigError for an unknown dtype.
std::shared_ptr<const io::MemoryTensors> memory_of(const std::shared_ptr<const Weights>& weights);

/// Returns the number format of --dtype `text`. Throws ConfigError for an unknown one.
Scalar format_named(const std::string& text);

Plan plan_of(const explain::Explained& explained);

/// Returns what makes the rule of rl from a reward function; null for no function. The rule throws RunStopped
/// if the function returns another number of rewards, or a number that is not finite as f32.
std::function<std::unique_ptr<reward::Rule>()> rule_of(const RewardFunction& function);

}  // namespace mantissa::api
