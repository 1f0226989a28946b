// Post-training objectives, replayed on saved tensors.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace mantissa::api {

struct ObjectiveOptions {
  /// ppo, grpo, dr-grpo, reinforce++, reinforce++-baseline, rloo, dpo or reward.
  std::string name;
  std::filesystem::path in, out;     // safetensors files (docs/cli/objective.md)
  std::vector<std::string> changes;  // keys of [rl] or [dpo]: "rl.kl=none"
  bool overwrite = false;            // replace an existing file at `out` that is not the result of a replay
};

struct ObjectiveReplay {
  double loss = 0;
  std::vector<std::string> notes;
  std::string text;  // for people
  std::string json;  // for programs (docs/cli/objective.md)
};

/// Writes the loss of the tensors of `in`, its gradients and its intermediate values to `out`, to compare
/// them with another implementation. Throws ConfigError, FileError, ShapeError or DtypeError for input that
/// does not fit, and RunStopped for a result that is not finite, after writing it.
ObjectiveReplay replay_objective(const ObjectiveOptions& options);

}  // namespace mantissa::api
