// The input tensors of the objectives of responses.
#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/lab/objective/inputs.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/objective/settings.h"

namespace mantissa::lab {

/// Tensors of [N, T]; rewards are [N, T] or [N], groups [N]. Those that the objective does not use are empty.
struct RlBatch {
  Shape shape;  // [N, T]
  std::vector<float> mask;
  std::vector<double> log_probs, old_log_probs, ref_log_probs, rollout_log_probs, rewards, values, old_values,
      entropy;
  std::vector<std::int64_t> groups;

  std::int64_t rows() const { return shape.sizes[0]; }
  std::int64_t length() const { return shape.sizes[1]; }
};

/// Reads the tensors that the settings need. Throws as Inputs does, also for values that are not finite at
/// tokens that count.
RlBatch read_rl_batch(const Inputs& inputs, const config::RlSection& rl,
                      const objective::RlSettings& settings);

}  // namespace mantissa::lab
