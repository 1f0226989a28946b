// One forward and backward pass written out for comparison with another framework.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "mantissa/kernels/context.h"
#include "mantissa/plan/program.h"
#include "mantissa/precision/policy.h"

namespace mantissa::train {

struct TraceOptions {
  std::filesystem::path model;   // a Hugging Face directory
  std::filesystem::path tokens;  // safetensors: input_ids int32 or int64 [B, T], optional labels [B, T]
  std::filesystem::path out;     // safetensors, all f32 (f64 under 64-true)
  bool grads = false;
  std::string values;  // glob over the plan's values; empty: none
  precision::Policy policy;
  std::function<void(const plan::Program&)> check;  // called before anything runs; may throw
  bool fold = true;                                 // plan passes that change no bit
  bool fuse = true;
};

struct TraceSummary {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  double loss = 0;
  std::int64_t predicted = 0;  // tokens in the loss
  std::size_t tensors = 0;
};

/// Writes `logits` [B, T, V], `log_probs` [B, T−1] of each next id, `loss` [1] (mean over predicted tokens),
/// with `grads` `grad.<weight>` for every weight, and the values that match, named `value.<scope>.<op>`,
/// [B·T, width]. Under a loss scale the backward pass is seeded with its first value, and gradients are
/// written unscaled. Labels are aligned with input_ids and shifted inside, −100 is ignored. Throws FileError,
/// ConfigError for inputs that do not fit the model.
TraceSummary write_trace(const TraceOptions& options, const kernels::Context& ctx);

}  // namespace mantissa::train
