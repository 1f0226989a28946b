// What tensors hold, and what each narrower format would lose of it.
#pragma once

#include <array>
#include <optional>

#include "mantissa/io/checkpoint.h"
#include "mantissa/kernels/context.h"
#include "mantissa/numeric/error_stats.h"
#include "mantissa/numeric/format.h"
#include "mantissa/numeric/value_stats.h"

namespace mantissa::convert {

/// The formats that a survey tries, the widest first.
inline constexpr std::array kSurveyed = {Scalar::f32, Scalar::tf32, Scalar::bf16,
                                         Scalar::f16, Scalar::e5m2, Scalar::e4m3};

struct Survey {
  ValueStats values;
  std::array<ErrorStats, kSurveyed.size()> losses;  // of a cast to each, rounded to nearest

  void merge(const Survey& other);
  /// The narrowest surveyed format of which every value is one; nothing where none is, or there is no value.
  std::optional<Scalar> lies_in() const;
};

/// Reads a floating-point tensor piece by piece, on all threads.
Survey survey(const io::WeightFiles& files, const io::TensorInfo& tensor, const kernels::Context& ctx);

}  // namespace mantissa::convert
