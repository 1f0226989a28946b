#include "kernels/reference/layernorm.h"

#include <algorithm>
#include <cmath>

namespace mantissa::kernels::reference {

void layernorm(std::int64_t tokens, std::int64_t channels, double eps, const double* x, const double* gain,
               const double* bias, double* y, double* mean, double* rstd) {
  const double n = static_cast<double>(channels);
  for (std::int64_t t = 0; t < tokens; ++t, x += channels, y += channels) {
    double sum = 0, squares = 0;
    for (std::int64_t c = 0; c < channels; ++c) sum += x[c];
    mean[t] = sum / n;
    for (std::int64_t c = 0; c < channels; ++c) squares += (x[c] - mean[t]) * (x[c] - mean[t]);
    rstd[t] = 1 / std::sqrt(squares / n + eps);
    for (std::int64_t c = 0; c < channels; ++c)
      y[c] = (x[c] - mean[t]) * rstd[t] * gain[c] + (bias == nullptr ? 0 : bias[c]);
  }
}

void layernorm_backward(std::int64_t tokens, std::int64_t channels, const double* x, const double* gain,
                        const double* mean, const double* rstd, const double* dy, double* dx) {
  const double n = static_cast<double>(channels);
  for (std::int64_t t = 0; t < tokens; ++t, x += channels, dy += channels, dx += channels) {
    const auto normal = [&](std::int64_t c) { return (x[c] - mean[t]) * rstd[t]; };
    double gradients = 0, products = 0;
    for (std::int64_t c = 0; c < channels; ++c) {
      gradients += dy[c] * gain[c];
      products += dy[c] * gain[c] * normal(c);
    }
    for (std::int64_t c = 0; c < channels; ++c)
      dx[c] = rstd[t] * (dy[c] * gain[c] - gradients / n - normal(c) * (products / n));
  }
}

void layernorm_gain(std::int64_t tokens, std::int64_t channels, const double* x, const double* mean,
                    const double* rstd, const double* dy, double* dgain) {
  std::fill_n(dgain, channels, 0.0);
  for (std::int64_t t = 0; t < tokens; ++t, x += channels, dy += channels) {
    for (std::int64_t c = 0; c < channels; ++c) dgain[c] += dy[c] * (x[c] - mean[t]) * rstd[t];
  }
}

}  // namespace mantissa::kernels::reference
