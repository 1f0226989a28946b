// Checks the sums that a caller of attention asks for.
#pragma once

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/numeric/card_sum.h"
#include "mantissa/core/numeric/factor.h"

namespace mantissa::kernels {

/// Throws DtypeError if attention in `arithmetic` does not have the order, or its card does not multiply
/// factors that `operand` rounds.
inline void check_sums(const Accumulator& accumulator, const Factor& operand, Scalar arithmetic) {
  const SumOrder order = accumulator.order;
  if (order != SumOrder::chain && arithmetic == Scalar::f64)
    throw DtypeError("attention: {} order is for f32 arithmetic, got f64",
                     order == SumOrder::tile ? "tile" : "a card's");
  if (order != SumOrder::card) return;
  if (operand.parts > 1 || !find_card_sum(accumulator, operand.format, operand.format))
    throw DtypeError("attention: {} multiplies {} in one part, got {} in {} parts", name(accumulator.card),
                     factors_of(accumulator.card), name(operand.format), operand.parts);
}

}  // namespace mantissa::kernels
