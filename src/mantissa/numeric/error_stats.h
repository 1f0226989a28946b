// What a change of format did to values.
#pragma once

#include <cstdint>

#include "mantissa/numeric/format.h"

namespace mantissa {

/// Errors (after − before) of values that became values of a narrower format. `count` and the three kinds of
/// loss count values; the errors are over the `measured` ones, which were finite before and after.
struct ErrorStats {
  std::uint64_t count = 0;
  std::uint64_t measured = 0;
  double max_abs = 0;      // largest |error|
  double max_ulp = 0;      // largest |error| in units of the narrow format's last place at the value before
  double sum = 0;          // of errors
  double sum_squares = 0;  // of errors squared
  std::uint64_t overflows =
      0;  // finite before, and nearest rounding has no finite value for it (saturated or not)
  std::uint64_t vanished = 0;   // not zero before, zero after
  std::uint64_t nonfinite = 0;  // inf or nan before

  /// Counts one value that was `before` and became `after`, a value of `s`.
  void add(double before, double after, Scalar s);

  /// Counts what another part of the values gave.
  void merge(const ErrorStats& other);

  /// Signed mean of the errors: bias. 0 where nothing was measured.
  double mean() const;

  /// Root mean square of the errors. 0 where nothing was measured.
  double rms() const;
};

}  // namespace mantissa
