// The answers of a run's model to its held-out prompts.
#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/engine/comm/communicator.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/train/rl/task.h"

namespace mantissa::rl {

struct HeldOutAnswers {
  std::vector<Sampled> samples;  // in the order of the prompts
  bool interrupted = false;      // then there are none
  std::vector<std::string> notes;
};

/// Answers the first `count` held-out prompts of `config`, all for 0, with the most likely tokens, and scores
/// them by rl.reward, as the run's validation does. Throws ConfigError if none are held out, and as
/// prepare() and rollout::complete() do; RunStopped if a reward program fails. `ranks` share the prompts, and
/// the first one scores: all call it alike. Null: this process alone.
HeldOutAnswers answer_held_out(const config::RunConfig& config, const weights::ModelSource& source,
                               const precision::Policy& policy, std::int64_t count,
                               const runtime::Device& device, const std::stop_token& stop,
                               comm::Communicator* ranks = nullptr);

}  // namespace mantissa::rl
