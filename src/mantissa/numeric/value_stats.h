// What values are: range, size, and how many are zero or not finite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "mantissa/numeric/simd_target.h"

namespace mantissa {

/// Of values that were added; the range and the sum are over the finite ones.
struct ValueStats {
  std::uint64_t count = 0;
  std::uint64_t nonfinite = 0;  // inf or nan
  std::uint64_t zeros = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double smallest = std::numeric_limits<double>::infinity();  // |value| that is not zero
  double sum_squares = 0;

  /// Adds one value.
  void add(double value);

  /// Adds n values; sum_squares takes them over 8 virtual lanes as ErrorStats::add_row does.
  void add_row(const float* values, std::size_t n, SimdTarget target = kBestTarget);
  void add_row(const double* values, std::size_t n, SimdTarget target = kBestTarget);

  /// Adds what another part of the values gave.
  void merge(const ValueStats& other);

  std::uint64_t finite() const { return count - nonfinite; }
  /// Root mean square of the finite values. 0 where there are none.
  double rms() const;
};

}  // namespace mantissa
