// The parameters that determine the bits of a matrix product, in addition to the values of its factors.
#pragma once

#include "mantissa/core/numeric/factor.h"

namespace mantissa {

/// Plans fix a product, and every unit that computes it gives the same bits (kernels/units.h).
struct Product {
  Scalar arithmetic = Scalar::f32;  // of multiply-adds and sums: f32 or f64
  Factor a, b;                      // the values that are multiplied
  Accumulator accumulator = {};     // the order of sums, and their format

  friend bool operator==(const Product&, const Product&) = default;
};

/// Returns the format of a factor that is stored in `stored` and rounded by `operand` while loading: the
/// narrower of the two.
constexpr Factor factor_of(Scalar stored, Factor operand) {
  if (operand.parts == 1 && holds(operand.format, stored)) operand.format = stored;
  return operand;
}

/// Returns the order in which plans sum products of such factors in f32, unless the policy overrides it.
constexpr SumOrder usual_order(const Factor& a, const Factor& b) {
  return exact_in_bf16(a.format) && exact_in_bf16(b.format) ? SumOrder::tile : SumOrder::chain;
}

/// Returns true if units that multiply bf16 can compute the product: all factors, or all of their parts,
/// are bf16 values, summed in tile order in f32.
constexpr bool multiplies_bf16(const Product& p) {
  return p.arithmetic == Scalar::f32 && p.accumulator.order == SumOrder::tile &&
         usual_order(p.a, p.b) == SumOrder::tile;
}

}  // namespace mantissa
