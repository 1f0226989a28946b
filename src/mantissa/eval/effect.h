// What a conversion did to a model: its loss and its distributions over some text, before and after.
#pragma once

#include <filesystem>
#include <optional>
#include <stop_token>

#include "mantissa/convert/report.h"
#include "mantissa/convert/source.h"
#include "mantissa/eval/evaluate.h"
#include "mantissa/precision/policy.h"
#include "mantissa/runtime/device.h"
#include "mantissa/text/dataset.h"
#include "mantissa/weights/model_files.h"

namespace mantissa::eval {

/// The original model and the rows over which it is compared with another.
class EffectRows {
 public:
  /// Reads `files`. Throws ConfigError where `in` is not a model directory, and as evaluate_model() does.
  EffectRows(const convert::Source& in, precision::Policy policy, const Files& files);

  /// Runs both models row by row. Both are in memory at once, but for what lies mapped in their files.
  /// Returns nothing where `stop` was used.
  std::optional<convert::Effect> compare(const std::filesystem::path& converted,
                                         const runtime::Device& device, const std::stop_token& stop) const;

 private:
  weights::ModelSource original_;
  precision::Policy policy_;
  text::StepData rows_;
};

/// Converts as `request` says, and compares the models over `rows` where there are any. Returns nothing where
/// `stop` was used before anything was written.
std::optional<convert::Report> convert_and_compare(const convert::Request& request,
                                                   const std::optional<EffectRows>& rows,
                                                   const runtime::Device& device,
                                                   const std::stop_token& stop);

}  // namespace mantissa::eval
