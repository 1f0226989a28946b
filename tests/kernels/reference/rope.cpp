#include "kernels/reference/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace mantissa::kernels::reference {
namespace {

/// 0 from `from` on, 1 up to `to`, linear in between.
double ramp(double x, double from, double to) {
  return std::clamp((from - x) / (from - to), 0.0, 1.0);
}

/// Returns the unchanged share of an unscaled frequency; the rest is divided by the factor.
double kept_share(std::int64_t head_dim, double theta, const RopeScaling& s, std::int64_t pair,
                  double frequency) {
  const double turns = static_cast<double>(s.original_positions) * frequency / (2 * std::numbers::pi);
  if (s.kind == RopeScaling::Kind::linear) return 0;
  if (s.kind == RopeScaling::Kind::llama3) return ramp(-turns, -s.low_freq_factor, -s.high_freq_factor);
  if (s.kind != RopeScaling::Kind::yarn) return 1;
  // The pair with this many turns is half of the dimension 2i at which theta^(−2i / d)·original / 2π =
  // rotations.
  const auto pair_of = [&](double rotations) {
    const double wavelength = static_cast<double>(s.original_positions) / rotations / (2 * std::numbers::pi);
    return static_cast<double>(head_dim) / 2 * std::log(wavelength) / std::log(theta);
  };
  double low = pair_of(s.beta_fast), high = pair_of(s.beta_slow);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(head_dim - 1));
  return ramp(static_cast<double>(pair), low == high ? low + 0.001 : high, low);
}

}  // namespace

std::vector<double> inverse_frequencies(std::int64_t head_dim, double theta, const RopeScaling& s,
                                        std::int64_t length) {
  const double d = static_cast<double>(head_dim);
  if (s.kind == RopeScaling::Kind::dynamic && length > s.original_positions) {
    const double longer = static_cast<double>(length) / static_cast<double>(s.original_positions);
    theta *= std::pow(1 + s.factor * (longer - 1), d / (d - 2));
  }
  std::vector<double> all;
  for (std::int64_t i = 0; i < head_dim / 2; ++i) {
    const double frequency = std::pow(theta, -2.0 * static_cast<double>(i) / d);
    const double kept = kept_share(head_dim, theta, s, i, frequency);
    all.push_back(frequency * (kept + (1 - kept) / s.factor));
  }
  return all;
}

void rope(const Extent& extent, const RopeHeads& heads, double theta, bool inverse, const double* x,
          double* y) {
  for (const Segment& segment : extent.segments) {
    for (std::int64_t t = segment.begin; t < segment.begin + segment.length; ++t) {
      const double position = static_cast<double>(segment.position + t - segment.begin);
      for (std::int64_t h = 0; h < heads.heads; ++h) {
        const double* from = x + (t * heads.heads + h) * heads.head_dim;
        double* to = y + (t * heads.heads + h) * heads.head_dim;
        std::copy(from, from + heads.head_dim, to);
        for (std::int64_t i = 0; i < heads.rotated / 2; ++i) {
          const double share = static_cast<double>(i) / static_cast<double>(heads.rotated);
          const double angle = (inverse ? -1 : 1) * position * std::pow(theta, -2.0 * share);
          const double a = from[heads.low(i)], b = from[heads.high(i)];
          to[heads.low(i)] = a * std::cos(angle) - b * std::sin(angle);
          to[heads.high(i)] = b * std::cos(angle) + a * std::sin(angle);
        }
      }
    }
  }
}

}  // namespace mantissa::kernels::reference
