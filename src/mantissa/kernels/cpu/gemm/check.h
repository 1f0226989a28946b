// The requirements of gemm(), formats that go together and enough scratch memory, and the choice of its
// kernel and unit.
#pragma once

#include "mantissa/core/numeric/card_sum.h"
#include "mantissa/kernels/gemm.h"
#include "mantissa/kernels/units.h"

namespace mantissa::kernels {

/// Returns f64 if both factors and C are f64, else f32.
Scalar arithmetic_of(const Gemm& g);

/// Returns what determines the bits of the product, the kernel that computes it, and the unit of that kernel.
Product product_of(const Gemm& g);
ProductKernel kernel_of(const Gemm& g);
UnitId unit_of(const Context& ctx, const Gemm& g);
/// Returns how the product's card sums it, in the order of a card.
CardSum card_sum_of(const Gemm& g);

/// Throws DtypeError or ShapeError for operands that do not go together, ResourceError if the workspace is
/// smaller than gemm_workspace().
void check(const Context& ctx, const Gemm& g);

}  // namespace mantissa::kernels
