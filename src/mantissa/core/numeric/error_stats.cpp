#include "mantissa/core/numeric/error_stats.h"

#include <algorithm>
#include <cmath>

#include "mantissa/core/numeric/round.h"

namespace mantissa {

void ErrorStats::add(double before, double after, Scalar s) {
  ++count;
  if (!std::isfinite(before)) {
    ++nonfinite;
    return;
  }
  const double magnitude = std::fabs(before);
  largest = std::max(largest, magnitude);
  if (!std::isfinite(after) || (magnitude > traits(s).max_finite && !std::isfinite(round_to(before, s)))) {
    ++overflows;
  }
  if (before != 0 && after == 0) ++vanished;
  if (!std::isfinite(after)) return;
  ++measured;
  const double error = after - before;
  max_abs = std::max(max_abs, std::fabs(error));
  max_ulp = std::max(max_ulp, std::fabs(error) / ulp(before, s));
  if (before != 0) max_relative = std::max(max_relative, std::fabs(error) / magnitude);
  sum += error;
  sum_squares += error * error;
  squares_before += before * before;
}

void ErrorStats::merge(const ErrorStats& other) {
  count += other.count;
  measured += other.measured;
  max_abs = std::max(max_abs, other.max_abs);
  max_ulp = std::max(max_ulp, other.max_ulp);
  max_relative = std::max(max_relative, other.max_relative);
  sum += other.sum;
  sum_squares += other.sum_squares;
  squares_before += other.squares_before;
  largest = std::max(largest, other.largest);
  overflows += other.overflows;
  vanished += other.vanished;
  nonfinite += other.nonfinite;
}

double ErrorStats::mean() const {
  return measured == 0 ? 0 : sum / static_cast<double>(measured);
}

double ErrorStats::rms() const {
  return measured == 0 ? 0 : std::sqrt(sum_squares / static_cast<double>(measured));
}

double ErrorStats::relative() const {
  return squares_before == 0 ? 0 : std::sqrt(sum_squares / squares_before);
}

}  // namespace mantissa
