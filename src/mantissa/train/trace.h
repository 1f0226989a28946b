// One forward and backward pass written out for comparison with another framework.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/io/safetensors.h"
#include "mantissa/plan/program.h"
#include "mantissa/precision/policy.h"
#include "mantissa/runtime/device.h"
#include "mantissa/weights/model_files.h"

namespace mantissa::train {

/// A tensor that is traced, in memory.
struct TracedTensor {
  std::string name;
  io::Dtype dtype = io::Dtype::f32;
  std::vector<std::int64_t> shape = {};
  std::vector<std::byte> bytes = {};
};

struct TraceOptions {
  weights::ModelSource model;
  std::filesystem::path tokens;  // safetensors: input_ids int32 or int64 [B, T], optional labels [B, T]
  /// Rows of ids, and if wanted labels, where `tokens` is empty.
  std::vector<std::vector<std::int32_t>> ids, labels;
  std::filesystem::path out;  // safetensors; empty: the tensors are handed back
  bool grads = false;
  std::string values;  // glob over the plan's values; empty: none
  /// Globs over the names of what is traced: these keep the format that they were rounded to. All else is
  /// converted to f32 (f64 under 64-true).
  std::vector<std::string> unconverted;
  precision::Policy policy;
  std::function<void(const plan::Program&)> check;  // called before anything runs; may throw
  bool fold = true;                                 // plan passes that change no bit
  bool fuse = true;
  std::stop_token stop;
};

struct TraceSummary {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  double loss = 0;
  std::int64_t predicted = 0;         // tokens in the loss
  std::vector<TracedTensor> tensors;  // where nothing was written
  bool interrupted = false;           // by a stop: nothing was written, and there are no tensors
};

/// Writes or hands back `logits` [B, T, V], `log_probs` [B, T−1] of each next id, `loss` [1] (mean over
/// predicted tokens), with `grads` `grad.<weight>` for every weight, and the values that match, named
/// `value.<scope>.<op>`, [B·T, width]. Under a loss scale the backward pass is seeded with its first value,
/// and gradients are written unscaled. Labels are aligned with input_ids and shifted inside, −100 is ignored.
/// Throws FileError, ShapeError, DtypeError, ConfigError for inputs that do not fit the model, ConfigError
/// for names that nothing has; RunStopped, after `out` was written, where logits, loss or gradients are not
/// finite, naming the first such value.
TraceSummary write_trace(const TraceOptions& options, const runtime::Device& device);

}  // namespace mantissa::train
