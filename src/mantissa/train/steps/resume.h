// The allowed changes of a run when it is resumed, and their description.
#pragma once

#include <optional>
#include <string>

#include "mantissa/files/io/state.h"
#include "mantissa/setup/config/run_config.h"

namespace mantissa::train {

/// Compares `config` with the config of `state`. Precision, optimizer settings, schedule, length of the run,
/// logging, checkpointing, threads, the micro-batch and recomputation may differ. So may the data's
/// sequence_length of a run of rl that refuses long prompts: it has room for the longest prompt, and the
/// length of the run decides how many prompts a generator makes. Returns the differences that can change
/// results, as "step 300: optimizer.lr 0.0003 -> 0.0001", or null; another number of held-out prompts is one.
/// `model` is the model's config.json. Throws ConfigError if model, data, seed or batch differ, because that
/// would be another run.
std::optional<std::string> resumed_change(const io::StateHeader& state, const config::RunConfig& config,
                                          const std::string& model);

}  // namespace mantissa::train
