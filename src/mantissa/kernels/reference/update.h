// Reference for the AdamW update of one element, in double.
#pragma once

#include "mantissa/kernels/adamw.h"

namespace mantissa::kernels::reference {

struct AdamWElement {
  double w = 0, m = 0, v = 0;
};

/// Returns the element after the update with `gradient` and the hyperparameters of `u`, whose pointers are
/// unused.
AdamWElement adamw(const AdamW& u, AdamWElement e, double gradient);

}  // namespace mantissa::kernels::reference
