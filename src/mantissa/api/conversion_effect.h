// What a conversion did to a model: its loss and its distributions over some text, before and after.
#pragma once

#include "mantissa/api/mantissa.h"
#include "mantissa/convert/source.h"
#include "mantissa/kernels/context.h"
#include "mantissa/precision/policy.h"
#include "mantissa/text/dataset.h"
#include "mantissa/weights/model_files.h"

namespace mantissa::api {

/// The original model and the rows over which it is compared with another.
class EffectRows {
 public:
  /// Reads the data that `options` names. Throws ConfigError where `in` is no model directory, and as
  /// evaluate() does.
  EffectRows(const convert::Source& in, const ConvertOptions& options);

  /// Runs both models row by row. Both are in memory at once, but for what lies mapped in their files.
  /// Nothing where `stop` was used.
  std::optional<ConversionEffect> compare(const std::filesystem::path& converted, const kernels::Context& ctx,
                                          const std::stop_token& stop) const;

 private:
  weights::ModelSource original_;
  precision::Policy policy_;
  text::StepData rows_;
};

}  // namespace mantissa::api
