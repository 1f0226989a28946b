// The effect of a rounding on values: their range and distribution as stored, and the errors against the
// values before it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "mantissa/core/numeric/binades.h"
#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/simd_target.h"

namespace mantissa {

/// Sums over the added values. Means and errors cover the finite ones.
struct ValueCounts {
  std::uint64_t count = 0;
  std::uint64_t zeros = 0, subnormal = 0;  // subnormal: below the smallest normal number of the format
  std::uint64_t saturated = 0;             // of the format's largest finite magnitude
  std::uint64_t inf = 0, nan = 0;
  double absmax = 0;
  double absmin = std::numeric_limits<double>::infinity();  // of those that are not zero
  double sum = 0, squares = 0;
  Binades binades{};

  // Of values that were also given before rounding:
  std::uint64_t compared = 0;  // finite before and after
  std::uint64_t flushed = 0;   // not zero before, zero after
  // finite before; inf or nan after, or the largest finite value instead of one beyond overflow_bound()
  std::uint64_t overflowed = 0;
  double error_sum = 0, error_squares = 0;
  double error_inward = 0;  // Σ |before| − |after|
  double max_ulp = 0;       // in units of the format's last place at the value before
  Binades before{};

  // Of values that are a sum of two terms:
  static constexpr double kCancelled = 1.0 / 64;
  std::uint64_t sums = 0, cancelled = 0;  // cancelled: below kCancelled times the larger term

  /// Adds n values of `format`, one by one.
  void add(const double* values, std::size_t n, Scalar format);
  /// Adds the errors of the same values, which were `before`.
  void add_errors(const double* before, const double* values, std::size_t n, Scalar format);
  /// Counts cancellation: values[i] = (values[i] − term[i]) + term[i].
  void add_sums(const double* values, const double* term, std::size_t n);

  /// The same for values and formats that f32 holds, in vectors. Sums run in f64 over 16 virtual lanes (value
  /// i in lane i mod 16, lanes joined 8, 4, 2, 1), and the last n mod 16 values are added one by one. Every
  /// instruction set gives the same bits. n is below 2^32.
  void add(const float* values, std::size_t n, Scalar format, SimdTarget target = kBestTarget);
  void add_errors(const float* before, const float* values, std::size_t n, Scalar format,
                  SimdTarget target = kBestTarget);
  void add_sums(const float* values, const float* term, std::size_t n, SimdTarget target = kBestTarget);

  void merge(const ValueCounts& other);

  std::uint64_t finite() const { return count - inf - nan; }
  double mean() const { return finite() == 0 ? 0 : sum / static_cast<double>(finite()); }
  double rms() const;
  /// Return the error relative to rms(); 0 if all values are zero.
  double relative_error() const;
  double relative_bias() const;
  /// The mean decrease of the magnitude; positive for rounding toward zero.
  double relative_inward() const;
};

}  // namespace mantissa
