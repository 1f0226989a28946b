// Error statistics of a change of format.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/simd_target.h"

namespace mantissa {

/// Errors (after − before) of values that were converted to a narrower format. `count`, `overflows`,
/// `vanished` and `nonfinite` count values. The errors cover the `measured` values, which were finite before
/// and after.
struct ErrorStats {
  std::uint64_t count = 0;
  std::uint64_t measured = 0;
  double max_abs = 0;       // largest |error|
  double max_ulp = 0;       // largest |error| in units of the narrow format's last place at the value before
  double max_relative = 0;  // largest |error| / |value before| over nonzero values
  double sum = 0;           // sum of errors
  double sum_squares = 0;   // sum of squared errors
  double squares_before = 0;  // sum of squares of the values before
  double largest = 0;         // largest finite |value| before, measured or not
  // finite before; beyond the range after rounding to nearest, or not finite after
  std::uint64_t overflows = 0;
  std::uint64_t vanished = 0;   // not zero before, zero after
  std::uint64_t nonfinite = 0;  // inf or nan before

  /// Counts one value that was `before` and became `after`, a value of `s`.
  void add(double before, double after, Scalar s);

  /// Counts n values: before[i] became after[i]. Sums run over 8 virtual lanes (value i in lane i mod 8,
  /// lanes joined in order), and the last n mod 8 values are added one by one. Every instruction set gives
  /// the same bits.
  void add_row(const float* before, const float* after, std::size_t n, Scalar s,
               SimdTarget target = kBestTarget);
  void add_row(const double* before, const double* after, std::size_t n, Scalar s,
               SimdTarget target = kBestTarget);

  /// Adds the statistics of another part of the values.
  void merge(const ErrorStats& other);

  /// Signed mean of the errors, the bias. 0 if nothing was measured.
  double mean() const;

  /// Root mean square of the errors. 0 if nothing was measured.
  double rms() const;

  /// Root mean square of the errors divided by that of the values before. 0 if all of these are zero.
  double relative() const;
};

}  // namespace mantissa
