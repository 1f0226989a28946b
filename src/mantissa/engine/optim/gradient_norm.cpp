#include "mantissa/engine/optim/gradient_norm.h"

#include <algorithm>
#include <cmath>

#include "mantissa/kernels/update.h"

namespace mantissa::optim {

GradientCheck check_gradients(const kernels::Context& ctx, std::span<const Gradient> gradients,
                              double max_norm, double loss_scale) {
  double sum_of_squares = 0;
  GradientCheck check;
  for (const Gradient& g : gradients) {
    const kernels::GradientNorm one = kernels::gradient_norm(ctx, g.matrix.data, g.matrix.type, g.count);
    sum_of_squares += one.sum_of_squares;
    check.finite = check.finite && one.finite;
  }
  check.norm = std::sqrt(sum_of_squares) / loss_scale;
  const double clip = max_norm > 0 ? std::min(1.0, max_norm / (check.norm + 1e-6)) : 1.0;
  check.factor = clip / loss_scale;
  return check;
}

}  // namespace mantissa::optim
