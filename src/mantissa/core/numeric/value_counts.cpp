#include "mantissa/core/numeric/value_counts.h"

#include <algorithm>
#include <cmath>

#include "mantissa/core/numeric/round.h"

namespace mantissa {

void ValueCounts::add(const double* values, std::size_t n, Scalar format) {
  const double least = std::ldexp(1.0, traits(format).min_normal_exp), most = traits(format).max_finite;
  count += n;
  for (std::size_t i = 0; i < n; ++i) {
    const double x = values[i], size = std::abs(x);
    if (!std::isfinite(x)) {
      ++(std::isnan(x) ? nan : inf);
      continue;
    }
    if (x == 0) {
      ++zeros;
      continue;
    }
    subnormal += size < least;
    saturated += size == most;
    absmax = std::max(absmax, size);
    absmin = std::min(absmin, size);
    sum += x;
    squares += x * x;
    ++binades.at(Binades::exponent_of(x));
  }
}

void ValueCounts::add_errors(const double* was, const double* values, std::size_t n, Scalar format) {
  const double most = traits(format).max_finite, bound = overflow_bound(format);
  // The distance of neighbouring values is 2^(e − bits) for a value with exponent e ≥ the smallest normal.
  const int bits = traits(format).mantissa_bits, least = traits(format).min_normal_exp;
  for (std::size_t i = 0; i < n; ++i) {
    const double x = was[i], y = values[i];
    if (!std::isfinite(x)) continue;
    if (x != 0) ++before.at(Binades::exponent_of(x));
    if (!std::isfinite(y) || (std::abs(y) == most && std::abs(x) > bound)) {
      ++overflowed;
      if (!std::isfinite(y)) continue;
    }
    ++compared;
    flushed += x != 0 && y == 0;
    const double error = y - x;
    if (error == 0) continue;
    error_sum += error;
    error_inward += std::abs(x) - std::abs(y);
    error_squares += error * error;
    const int exponent = x == 0 ? least : std::max(Binades::exponent_of(x), least);
    max_ulp = std::max(max_ulp, std::ldexp(std::abs(error), bits - exponent));
  }
}

void ValueCounts::add_sums(const double* values, const double* term, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i) {
    if (!std::isfinite(values[i]) || !std::isfinite(term[i])) continue;
    const double larger = std::max(std::abs(term[i]), std::abs(values[i] - term[i]));
    ++sums;
    cancelled += std::abs(values[i]) < kCancelled * larger;
  }
}

void ValueCounts::merge(const ValueCounts& other) {
  count += other.count;
  zeros += other.zeros;
  subnormal += other.subnormal;
  saturated += other.saturated;
  inf += other.inf;
  nan += other.nan;
  absmax = std::max(absmax, other.absmax);
  absmin = std::min(absmin, other.absmin);
  sum += other.sum;
  squares += other.squares;
  binades.merge(other.binades);
  compared += other.compared;
  flushed += other.flushed;
  overflowed += other.overflowed;
  error_sum += other.error_sum;
  error_inward += other.error_inward;
  error_squares += other.error_squares;
  max_ulp = std::max(max_ulp, other.max_ulp);
  before.merge(other.before);
  sums += other.sums;
  cancelled += other.cancelled;
}

double ValueCounts::rms() const {
  return finite() == 0 ? 0 : std::sqrt(squares / static_cast<double>(finite()));
}

double ValueCounts::relative_error() const {
  const double size = rms();
  return size == 0 || compared == 0 ? 0 : std::sqrt(error_squares / static_cast<double>(compared)) / size;
}

double ValueCounts::relative_bias() const {
  const double size = rms();
  return size == 0 || compared == 0 ? 0 : error_sum / static_cast<double>(compared) / size;
}

double ValueCounts::relative_inward() const {
  const double size = rms();
  return size == 0 || compared == 0 ? 0 : error_inward / static_cast<double>(compared) / size;
}

}  // namespace mantissa
