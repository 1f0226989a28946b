// Expression programs on one element, in double. The kernel is judged by this.
#pragma once

#include <span>
#include <vector>

#include "mantissa/kernels/pointwise.h"

namespace mantissa::kernels::reference {

/// The outputs before they are rounded to their formats. Rounding points of the program are taken.
std::vector<double> evaluate(const Expression& program, std::span<const double> inputs);

}  // namespace mantissa::kernels::reference
