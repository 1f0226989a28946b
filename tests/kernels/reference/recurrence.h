// The recurrence of kernels/recurrence.h and its gradients by their formulas, in double.
#pragma once

#include <cstdint>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/kernels/recurrence.h"

namespace mantissa::kernels::reference {

/// Dense arrays as in kernels::Recurrence. `initial` [heads, key_dim, value_dim] may be null, and so may
/// `last` [segments, heads, key_dim, value_dim].
struct Recurrence {
  RecurrenceShape shape;
  bool head_decay = false;
  const double *r = nullptr, *decay = nullptr, *k = nullptr, *v = nullptr, *alpha = nullptr, *beta = nullptr;
  const double* initial = nullptr;
};
void recurrence(const Extent& extent, const Recurrence& c, double* y, double* last = nullptr);

/// Gradients for dy; dinitial [heads, key_dim, value_dim] is overwritten unless it is null.
struct RecurrenceGradients {
  double *dr = nullptr, *ddecay = nullptr, *dk = nullptr, *dv = nullptr, *dalpha = nullptr, *dbeta = nullptr;
  double* dinitial = nullptr;
};
void recurrence_backward(const Extent& extent, const Recurrence& c, const double* dy,
                         const RecurrenceGradients& to);

}  // namespace mantissa::kernels::reference
