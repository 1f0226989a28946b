// The AdamW update of one element, in double. The kernel is judged by this.
#pragma once

#include "mantissa/kernels/adamw.h"

namespace mantissa::kernels::reference {

struct AdamWElement {
  double w = 0, m = 0, v = 0;
};

/// The element after the update with `gradient` that the hyperparameters of `u` describe; its pointers are
/// not used.
AdamWElement adamw(const AdamW& u, AdamWElement e, double gradient);

}  // namespace mantissa::kernels::reference
