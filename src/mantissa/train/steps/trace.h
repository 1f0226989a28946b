// Traces: the values of one forward and backward pass, for comparison with another framework.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/engine/plan/program.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/files/io/safetensors.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::train {

/// A traced tensor in memory.
struct TracedTensor {
  std::string name;
  io::Dtype dtype = io::Dtype::f32;
  std::vector<std::int64_t> shape = {};
  std::vector<std::byte> bytes = {};
};

struct TraceOptions {
  weights::ModelSource model;
  std::filesystem::path tokens;  // safetensors: input_ids int32 or int64 [B, T], optional labels [B, T]
  /// Rows of ids and optional labels, if `tokens` is empty.
  std::vector<std::vector<std::int32_t>> ids, labels;
  std::filesystem::path out;  // safetensors; empty: the tensors are returned
  bool overwrite = false;     // replaces a file that is not a trace
  bool grads = false;
  std::string values;  // glob over the plan's values; empty: none
  /// Globs over the names of traced tensors that keep the format they were rounded to. All others are
  /// converted to f32 (f64 under 64-true).
  std::vector<std::string> unconverted;
  precision::Policy policy;
  std::filesystem::path deepspeed;                  // the file of the policy, or empty
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
  std::vector<TracedTensor> tensors;  // if nothing was written
  bool interrupted = false;           // by a stop: nothing was written or returned
};

/// Writes or returns `logits` [B, T, V], `log_probs` [B, T−1] of each next id, `loss` [1] (mean over
/// predicted tokens), with `grads` `grad.<weight>` for every weight, and the values that match, named
/// `value.<scope>.<op>`, [B·T, width]. Under a loss scale the backward pass is seeded with its first value,
/// and gradients are written unscaled. Labels are aligned with input_ids and shifted internally; −100 is
/// ignored. Throws FileError if `out` must not be written (trace_place.h), FileError, ShapeError, DtypeError
/// or ConfigError for inputs that do not fit the model, and ConfigError for globs that match nothing. Throws
/// RunStopped, after writing `out`, if logits, loss or gradients are not finite, with the first such value.
TraceSummary write_trace(const TraceOptions& options, const runtime::Device& device);

}  // namespace mantissa::train
