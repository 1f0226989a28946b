// What tensors hold, and what each narrower format would lose of it.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <string_view>

#include "mantissa/io/checkpoint.h"
#include "mantissa/kernels/context.h"
#include "mantissa/numeric/error_stats.h"
#include "mantissa/numeric/format.h"
#include "mantissa/numeric/scaled.h"
#include "mantissa/numeric/value_stats.h"

namespace mantissa::convert {

/// The plain formats that a survey tries, the widest first. It tries all formats of blocks after them.
inline constexpr std::array kSurveyed = {Scalar::f32, Scalar::tf32, Scalar::bf16,
                                         Scalar::f16, Scalar::e5m2, Scalar::e4m3};

struct Survey {
  ValueStats values;
  std::array<ErrorStats, kSurveyed.size()> losses;  // of a cast to each, rounded to nearest
  /// Of rounding to each format of blocks, as a conversion does it.
  std::array<ErrorStats, std::size(kBlockFormats)> block_losses;

  void merge(const Survey& other);
  /// The narrowest plain format of which every value is one; nothing where none is, or there is no value.
  std::optional<Scalar> lies_in() const;
  /// All losses by the names of their formats, in the order of the survey.
  void for_losses(const std::function<void(std::string_view format, const ErrorStats& loss)>& look) const;
};

/// Reads a floating-point tensor piece by piece, on all threads: twice, since blocks of nvfp4 need the
/// largest magnitude of all values. The figures are those of a conversion (convert/rewrite.h), to the last
/// bit.
Survey survey(const io::WeightFiles& files, const io::TensorInfo& tensor, const kernels::Context& ctx);

}  // namespace mantissa::convert
