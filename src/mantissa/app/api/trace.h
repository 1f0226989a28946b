// One forward and backward pass as tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/app/api/hardware.h"
#include "mantissa/app/api/model.h"
#include "mantissa/app/api/precision.h"
#include "mantissa/app/api/tensor.h"

namespace mantissa::api {

struct TraceOptions {
  Model model;
  std::filesystem::path tokens, out;
  std::vector<std::vector<std::int32_t>> ids, labels;  // rows from memory, if `tokens` is empty
  bool grads = false;                                  // include the gradients of all weights
  bool overwrite = false;  // replace an existing file at `out` that is not a trace
  std::string values;      // a glob for values of the plan to include; empty: none
  /// Tensors to return in the format that they were rounded to, as globs over their names: "logits", "grad.*"
  /// (docs/library.md, "Edges"). All others are f32 (f64 under `64-true`).
  std::vector<std::string> unconverted;
  Precision precision;
  Hardware hardware;
};

struct Trace {
  double loss = 0;              // mean over the predicted tokens
  std::int64_t predicted = 0;   // labels that are not masked
  std::vector<Tensor> tensors;  // if `out` is empty
  bool interrupted = false;     // by a stop: nothing was written or returned
};
/// Writes a trace file (docs/cli/trace.md), or returns its tensors if `out` is empty. Throws FileError,
/// ShapeError, DtypeError or ConfigError for input that does not fit the model. Throws FileError before
/// anything runs if `out` is a file of the model or another input or, unless `overwrite`, an existing file
/// that is not a trace. Throws RunStopped for a non-finite value, after writing the file.
Trace trace(const TraceOptions& options, std::stop_token stop = {});

}  // namespace mantissa::api
