// What a change of format did to values.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/numeric/format.h"
#include "mantissa/numeric/simd_target.h"

namespace mantissa {

/// Errors (after − before) of values that became values of a narrower format. `count` and the three kinds of
/// loss count values; the errors are over the `measured` ones, which were finite before and after.
struct ErrorStats {
  std::uint64_t count = 0;
  std::uint64_t measured = 0;
  double max_abs = 0;       // largest |error|
  double max_ulp = 0;       // largest |error| in units of the narrow format's last place at the value before
  double max_relative = 0;  // largest |error| as a share of the value before, where that is not zero
  double sum = 0;           // of errors
  double sum_squares = 0;   // of errors squared
  double squares_before = 0;  // of values before, squared
  double largest = 0;         // largest finite |value| before, measured or not
  std::uint64_t overflows =
      0;  // finite before, and not after, or nearest rounding has no finite value for it (saturated or not)
  std::uint64_t vanished = 0;   // not zero before, zero after
  std::uint64_t nonfinite = 0;  // inf or nan before

  /// Counts one value that was `before` and became `after`, a value of `s`.
  void add(double before, double after, Scalar s);

  /// Counts n values, before[i] that became after[i]. The sums take them over 8 virtual lanes (value i in
  /// lane i mod 8, lanes joined in order), so they have the same bits on every instruction set.
  void add_row(const float* before, const float* after, std::size_t n, Scalar s,
               SimdTarget target = kBestTarget);
  void add_row(const double* before, const double* after, std::size_t n, Scalar s,
               SimdTarget target = kBestTarget);

  /// Counts what another part of the values gave.
  void merge(const ErrorStats& other);

  /// Signed mean of the errors: bias. 0 where nothing was measured.
  double mean() const;

  /// Root mean square of the errors. 0 where nothing was measured.
  double rms() const;

  /// Root mean square of the errors as a share of that of the values before. 0 where all of these are zero.
  double relative() const;
};

}  // namespace mantissa
