#include "kernels/reference/norm.h"

#include <algorithm>
#include <cmath>

namespace mantissa::kernels::reference {

void rmsnorm(std::int64_t tokens, std::int64_t channels, double eps, const double* x, const double* gain,
             double* y, double* rstd, double gain_offset) {
  for (std::int64_t t = 0; t < tokens; ++t, x += channels, y += channels) {
    double squares = 0;
    for (std::int64_t c = 0; c < channels; ++c) squares += x[c] * x[c];
    rstd[t] = 1 / std::sqrt(squares / static_cast<double>(channels) + eps);
    for (std::int64_t c = 0; c < channels; ++c) y[c] = x[c] * rstd[t] * (gain_offset + gain[c]);
  }
}

void rmsnorm_backward(std::int64_t tokens, std::int64_t channels, const double* x, const double* gain,
                      const double* rstd, const double* dy, double* dx, double gain_offset) {
  for (std::int64_t t = 0; t < tokens; ++t, x += channels, dy += channels, dx += channels) {
    const auto g = [&](std::int64_t c) { return dy[c] * (gain_offset + gain[c]); };
    double products = 0;
    for (std::int64_t c = 0; c < channels; ++c) products += g(c) * x[c] * rstd[t];
    const double mean = products / static_cast<double>(channels);
    for (std::int64_t c = 0; c < channels; ++c) dx[c] = rstd[t] * (g(c) - x[c] * rstd[t] * mean);
  }
}

void rmsnorm_gain(std::int64_t tokens, std::int64_t channels, const double* x, const double* rstd,
                  const double* dy, double* dgain) {
  std::fill_n(dgain, channels, 0.0);
  for (std::int64_t t = 0; t < tokens; ++t, x += channels, dy += channels) {
    for (std::int64_t c = 0; c < channels; ++c) dgain[c] += dy[c] * x[c] * rstd[t];
  }
}

}  // namespace mantissa::kernels::reference
