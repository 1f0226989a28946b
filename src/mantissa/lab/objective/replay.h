// An objective, replayed on the tensors of a file.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace mantissa::lab {

/// Returns "ppo", "grpo", "dr-grpo", "reinforce++", "reinforce++-baseline", "rloo", "dpo", "reward".
std::span<const std::string> objective_names();

struct ObjectiveRequest {
  std::string name;
  std::filesystem::path in, out;            // safetensors files (docs/cli/objective.md)
  std::vector<std::string> overrides = {};  // "rl.kl=none", as in --set
  bool overwrite = false;                   // replace a file at `out` that no replay wrote
};

struct ObjectiveReplay {
  double loss = 0;
  std::vector<std::string> notes;
  std::string text, json;  // for people, for programs
};

/// Computes the objective `name` and writes the loss, its gradients and intermediate values to `out`, all
/// f32. Throws ConfigError, FileError, ShapeError or DtypeError for invalid input, before anything is
/// written, and RunStopped for a result that is not finite in f32, after writing it.
ObjectiveReplay replay_objective(const ObjectiveRequest& request);

}  // namespace mantissa::lab
