// The requirements of gemm(): formats that go together, and enough scratch memory.
#pragma once

#include "mantissa/kernels/gemm.h"

namespace mantissa::kernels {

/// Returns f64 if both factors and C are f64, else f32.
Scalar arithmetic_of(const Gemm& g);

/// Returns true if all factors, or all of their parts, are bf16 values, summed in tile order: units that
/// multiply bf16 can compute the product.
bool bf16_factors(const Gemm& g);

/// Throws DtypeError or ShapeError for operands that do not go together, ResourceError if the workspace is
/// smaller than gemm_workspace().
void check(const Context& ctx, const Gemm& g);

}  // namespace mantissa::kernels
