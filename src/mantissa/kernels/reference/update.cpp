#include "mantissa/kernels/reference/update.h"

#include <cmath>

namespace mantissa::kernels::reference {

AdamWElement adamw(const AdamW& u, AdamWElement e, double gradient) {
  const double t = static_cast<double>(u.t), g = gradient * u.gradient_factor;
  e.m = u.beta1 * e.m + (1 - u.beta1) * g;
  e.v = u.beta2 * e.v + (1 - u.beta2) * g * g;
  const double m = e.m / (1 - std::pow(u.beta1, t)), v = e.v / (1 - std::pow(u.beta2, t));
  e.w = e.w * (1 - u.lr * u.weight_decay) - u.lr * m / (std::sqrt(v) + u.eps);
  return e;
}

}  // namespace mantissa::kernels::reference
