// Reference for the sum over tokens by its formula, in double.
#pragma once

#include <cstdint>

namespace mantissa::kernels::reference {

/// sum = Σ_t x[t]. x: [tokens, columns]; sum: [columns]; dense.
void token_sum(std::int64_t tokens, std::int64_t columns, const double* x, double* sum);

}  // namespace mantissa::kernels::reference
