// The charts of a comparison.
#pragma once

#include <vector>

#include "mantissa/lab/compare/compare.h"
#include "mantissa/report/page.h"

namespace mantissa::lab {

/// Returns the differences, each the mean over itself and the ones before, a tenth of all in number. So the
/// last one is the loss gap. A difference that is not finite counts for none of the means; without a finite
/// one the mean is NaN.
std::vector<StepDifference> trailing_means(const std::vector<StepDifference>& all);

/// Returns the losses over the steps, and the differences from the reference with the band of the noise.
report::Section losses_section(const Comparison& comparison);

}  // namespace mantissa::lab
