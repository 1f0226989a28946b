// Reference for the norms of an adapted weight's rows by their formula, in double.
#pragma once

#include <cstdint>

namespace mantissa::kernels::reference {

/// norms[o] = ‖W[o] + scale·B[o]·A‖₂. W: [out, in], or [in, out] if `transposed`; A: [rank, in]; B: [out,
/// rank]; norms: [out]; dense.
void row_norms(std::int64_t out, std::int64_t in, std::int64_t rank, double scale, bool transposed,
               const double* weight, const double* a, const double* b, double* norms);

}  // namespace mantissa::kernels::reference
