// Statistics of values: range, root mean square, and the number of zeros and of values that are not finite.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "mantissa/core/numeric/simd_target.h"

namespace mantissa {

/// Statistics of the added values. The range and the sum cover the finite ones.
struct ValueStats {
  std::uint64_t count = 0;
  std::uint64_t nonfinite = 0;  // inf or nan
  std::uint64_t zeros = 0;
  double min = std::numeric_limits<double>::infinity();
  double max = -std::numeric_limits<double>::infinity();
  double smallest = std::numeric_limits<double>::infinity();  // the smallest nonzero |value|
  double sum_squares = 0;

  /// Adds one value.
  void add(double value);

  /// Adds n values. sum_squares runs over 8 virtual lanes, as in ErrorStats::add_row.
  void add_row(const float* values, std::size_t n, SimdTarget target = kBestTarget);
  void add_row(const double* values, std::size_t n, SimdTarget target = kBestTarget);

  /// Adds the statistics of another part of the values.
  void merge(const ValueStats& other);

  std::uint64_t finite() const { return count - nonfinite; }
  /// Root mean square of the finite values; 0 if there are none.
  double rms() const;
};

}  // namespace mantissa
