#include "mantissa/engine/optim/gradient_norm.h"

#include <algorithm>
#include <cmath>

namespace mantissa::optim {

GradientCheck check_norms(std::span<const kernels::GradientNorm> norms, double max_norm, double loss_scale) {
  double sum_of_squares = 0;
  GradientCheck check;
  for (const kernels::GradientNorm& one : norms) {
    sum_of_squares += one.sum_of_squares;
    check.finite = check.finite && one.finite;
  }
  check.norm = std::sqrt(sum_of_squares) / loss_scale;
  const double clip = max_norm > 0 ? std::min(1.0, max_norm / (check.norm + 1e-6)) : 1.0;
  check.factor = clip / loss_scale;
  return check;
}

}  // namespace mantissa::optim
