// The effect of a conversion on a model: its loss and its distributions over some text, before and after.
#pragma once

#include <filesystem>
#include <optional>
#include <stop_token>

#include "mantissa/engine/runtime/device.h"
#include "mantissa/files/convert/report.h"
#include "mantissa/files/io/model_path.h"
#include "mantissa/generate/eval/evaluate.h"
#include "mantissa/precision/policy/policy.h"
#include "mantissa/setup/weights/model_files.h"
#include "mantissa/text/rows/dataset.h"

namespace mantissa::eval {

/// The original model, and the rows over which it is compared with another.
class EffectRows {
 public:
  /// Reads `files` with the tokenizer of `in`: a model directory, a state, or a GGUF file, whose model has
  /// the dequantized weights. Throws ConfigError for any other file, and otherwise as evaluate_model() does.
  EffectRows(const io::ModelPath& in, precision::Policy policy, const Files& files);

  /// Runs both models row by row. Both are in memory at the same time, except for mapped files. Returns null
  /// after a stop between two rows.
  std::optional<convert::Effect> compare(const std::filesystem::path& converted,
                                         const runtime::Device& device, const std::stop_token& stop) const;

 private:
  weights::ModelSource original_;
  precision::Policy policy_;
  text::StepData rows_;
};

/// Converts, and compares the models over `rows` if there are any. After a stop, returns null if nothing was
/// written, and otherwise a report without a comparison and with `interrupted` set.
std::optional<convert::Report> convert_and_compare(const convert::Request& request,
                                                   const std::optional<EffectRows>& rows,
                                                   const runtime::Device& device,
                                                   const std::stop_token& stop);

}  // namespace mantissa::eval
