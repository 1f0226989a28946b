// Reference for expression programs on one element, in double.
#pragma once

#include <span>
#include <vector>

#include "mantissa/kernels/pointwise.h"

namespace mantissa::kernels::reference {

/// Returns the outputs before rounding to their formats. Applies the program's rounding points.
std::vector<double> evaluate(const Expression& program, std::span<const double> inputs);

}  // namespace mantissa::kernels::reference
