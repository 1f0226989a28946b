// One forward and backward pass as tensors.
#pragma once

#include <cstdint>
#include <filesystem>
#include <stop_token>
#include <string>
#include <vector>

#include "mantissa/api/hardware.h"
#include "mantissa/api/model.h"
#include "mantissa/api/precision.h"
#include "mantissa/api/tensor.h"

namespace mantissa::api {

struct TraceOptions {
  Model model;
  std::filesystem::path tokens, out;
  std::vector<std::vector<std::int32_t>> ids, labels;  // rows from memory, where `tokens` is empty
  bool grads = false;                                  // of every weight
  std::string values;                                  // a glob over the plan's values; empty: none
  /// What is handed out in the format that it was rounded to; all else in f32 (f64 under `64-true`). Globs
  /// over the names of tensors: "logits", "grad.*" (docs/library.md, "Edges").
  std::vector<std::string> unconverted;
  Precision precision;
  Hardware hardware;
};

struct Trace {
  double loss = 0;              // mean over the predicted tokens
  std::int64_t predicted = 0;   // labels that are not masked
  std::vector<Tensor> tensors;  // where `out` is empty
  bool interrupted = false;     // by the stop: nothing was written, and there are no tensors
};
/// Writes a trace file (docs/cli.md, "trace"), or hands its tensors back where `out` is empty. Throws
/// FileError, ShapeError, DtypeError, ConfigError for what does not fit the model, and RunStopped, after the
/// file is written, where a value is not finite.
Trace trace(const TraceOptions& options, std::stop_token stop = {});

}  // namespace mantissa::api
