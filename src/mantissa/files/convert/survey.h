// Measures the values of tensors, and the loss of a conversion to each narrower format.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string_view>

#include "mantissa/core/numeric/error_stats.h"
#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/scaled.h"
#include "mantissa/core/numeric/value_stats.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/kernels/context.h"

namespace mantissa::convert {

/// The plain formats of a survey, the widest first. All block formats follow.
inline constexpr std::array kSurveyed = {Scalar::f32, Scalar::tf32, Scalar::bf16,
                                         Scalar::f16, Scalar::e5m2, Scalar::e4m3};

struct Survey {
  ValueStats values;
  std::array<ErrorStats, kSurveyed.size()> losses;  // of a cast to each format, rounded to nearest
  /// Of rounding to each block format, as a conversion does it.
  std::array<ErrorStats, std::size(kBlockFormats)> block_losses;

  void merge(const Survey& other);
  /// Returns the narrowest plain format that represents every value, or null if there is none or no value.
  std::optional<Scalar> lies_in() const;
  /// Calls `look` for all losses with the names of their formats, in the order of the survey.
  void for_losses(const std::function<void(std::string_view format, const ErrorStats& loss)>& look) const;
};

/// Surveys a floating-point tensor in pieces, on all threads. Reads it twice, since nvfp4 needs the largest
/// magnitude of all values. The figures equal those of a conversion (files/convert/rewrite.h) bit for bit.
Survey survey(const io::WeightFiles& files, const io::TensorInfo& tensor, const kernels::Context& ctx);

}  // namespace mantissa::convert
