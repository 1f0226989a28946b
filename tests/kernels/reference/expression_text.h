// Expression programs as text.
#pragma once

#include <string>

#include "mantissa/kernels/pointwise.h"

namespace mantissa::kernels::reference {

/// Returns for example "t0 = tanh(in0); out0 = t0 * t0; out1 = t0".
std::string text_of(const Expression& expression);

}  // namespace mantissa::kernels::reference
