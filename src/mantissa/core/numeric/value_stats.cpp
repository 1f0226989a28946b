#include "mantissa/core/numeric/value_stats.h"

#include <algorithm>
#include <cmath>

namespace mantissa {

void ValueStats::add(double value) {
  ++count;
  if (!std::isfinite(value)) {
    ++nonfinite;
    return;
  }
  min = std::min(min, value);
  max = std::max(max, value);
  sum_squares += value * value;
  if (value == 0) {
    ++zeros;
  } else {
    smallest = std::min(smallest, std::fabs(value));
  }
}

void ValueStats::merge(const ValueStats& other) {
  count += other.count;
  nonfinite += other.nonfinite;
  zeros += other.zeros;
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  smallest = std::min(smallest, other.smallest);
  sum_squares += other.sum_squares;
}

double ValueStats::rms() const {
  return finite() == 0 ? 0 : std::sqrt(sum_squares / static_cast<double>(finite()));
}

}  // namespace mantissa
