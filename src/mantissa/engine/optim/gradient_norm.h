// The norm of all gradients, and the resulting factor before an update.
#pragma once

#include <cstdint>
#include <span>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/update.h"

namespace mantissa::optim {

/// The gradient of one parameter, `count` elements.
struct Gradient {
  Matrix matrix;
  std::int64_t count = 0;
};

struct GradientCheck {
  double norm = 0;     // unscaled, before clipping
  bool finite = true;  // all gradients are finite
  double factor = 1;   // unscales and clips
};

/// Returns the norm and the finite check of all gradients from those of each, which were multiplied by
/// `loss_scale`. The factor is min(1, max_norm / (norm + 1e-6)) / loss_scale; max_norm 0 disables clipping.
GradientCheck check_norms(std::span<const kernels::GradientNorm> norms, double max_norm, double loss_scale);

}  // namespace mantissa::optim
