#include "mantissa/kernels/reference/rope.h"

#include <cmath>

namespace mantissa::kernels::reference {

void rope(const Extent& extent, std::int64_t heads, std::int64_t head_dim, double theta, bool inverse,
          const double* x, double* y) {
  const std::int64_t half = head_dim / 2;
  for (const Segment& segment : extent.segments) {
    for (std::int64_t t = segment.begin; t < segment.begin + segment.length; ++t) {
      const double position = static_cast<double>(segment.position + t - segment.begin);
      for (std::int64_t h = 0; h < heads; ++h) {
        for (std::int64_t i = 0; i < half; ++i) {
          const double turn = std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
          const double angle = (inverse ? -1 : 1) * position * turn;
          const std::int64_t low = (t * heads + h) * head_dim + i, high = low + half;
          const double a = x[low], b = x[high];
          y[low] = a * std::cos(angle) - b * std::sin(angle);
          y[high] = b * std::cos(angle) + a * std::sin(angle);
        }
      }
    }
  }
}

}  // namespace mantissa::kernels::reference
