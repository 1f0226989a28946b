#include "mantissa/core/numeric/distribution.h"

#include <algorithm>
#include <cmath>

namespace mantissa {

void Distribution::add(const double* values, std::size_t n, double factor) {
  Binades* const sides[] = {&positive, &negative};  // selected without a branch: signs are random
  for (std::size_t i = 0; i < n; ++i) {
    const double x = values[i] * factor;
    if (!std::isfinite(x)) continue;
    ++count;
    min = std::min(min, x);
    max = std::max(max, x);
    sum += x;
    squares += x * x;
    if (x == 0) {
      ++zeros;
    } else {
      ++sides[std::signbit(x)]->at(Binades::exponent_of(x));
    }
  }
}

void Distribution::merge(const Distribution& other) {
  count += other.count;
  zeros += other.zeros;
  negative.merge(other.negative);
  positive.merge(other.positive);
  min = std::min(min, other.min);
  max = std::max(max, other.max);
  sum += other.sum;
  squares += other.squares;
}

}  // namespace mantissa
