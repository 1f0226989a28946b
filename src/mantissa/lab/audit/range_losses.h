// The largest losses of an audit by the range of formats, also those below the thresholds.
#pragma once

#include <algorithm>
#include <string>

#include "mantissa/lab/audit/audit.h"

namespace mantissa::lab {

/// The largest share of a value's elements in a step, and the value: "model.layers.3.mlp matmul backward".
struct RangeLoss {
  double share = 0;
  std::string place = {};
};

struct RangeLosses {
  RangeLoss large;  // reached the largest number of the format, or went beyond it
  RangeLoss small;  // not zero before rounding, and zero after it
  RangeLoss first;  // the same in step 1 under a delayed scale, which has no history there and is 1
  double most() const { return std::max(large.share, small.share); }
};

/// Steps that were skipped do not count.
RangeLosses range_losses(const Audit& audit);

}  // namespace mantissa::lab
