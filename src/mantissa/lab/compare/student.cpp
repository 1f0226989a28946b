#include "mantissa/lab/compare/student.h"

#include <cmath>

namespace mantissa::lab {
namespace {

/// Returns the continued fraction of the incomplete beta function by Lentz's method (Abramowitz and Stegun,
/// 26.5.8). It converges fast for x < (a + 1) / (a + b + 2).
double beta_fraction(double a, double b, double x) {
  constexpr double kLeast = 1e-300, kExact = 1e-15;
  constexpr int kMost = 1000;
  const auto away_from_zero = [](double v) { return std::fabs(v) < kLeast ? kLeast : v; };
  double c = 1, d = 1 / away_from_zero(1 - (a + b) * x / (a + 1)), value = d;
  for (int m = 1; m <= kMost; ++m) {
    const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
    d = 1 / away_from_zero(1 + even * d);
    c = away_from_zero(1 + even / c);
    value *= d * c;
    const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    d = 1 / away_from_zero(1 + odd * d);
    c = away_from_zero(1 + odd / c);
    value *= d * c;
    if (std::fabs(d * c - 1) < kExact) break;
  }
  return value;
}

/// Returns the regularized incomplete beta function I_x(a, b).
double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double log_front =
      std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x);
  if (x < (a + 1) / (a + b + 2)) return std::exp(log_front) * beta_fraction(a, b, x) / a;
  return 1 - std::exp(log_front) * beta_fraction(b, a, 1 - x) / b;
}

}  // namespace

double student_tail(double t, double degrees) {
  return incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t));
}

double student_limit(double tail, double degrees) {
  double low = 0, high = 1;
  while (high < 1e12 && student_tail(high, degrees) > tail) high *= 2;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (student_tail(middle, degrees) > tail ? low : high) = middle;
  }
  return high;
}

}  // namespace mantissa::lab
