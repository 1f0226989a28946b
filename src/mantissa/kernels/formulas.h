// The programs of updates that sweeps run compiled instead of interpreted. Any other program runs too, with
// the same bits, at a quarter to a half of the speed.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "mantissa/kernels/sweep.h"

namespace mantissa::kernels {

/// Operands of adamw_program() that have an element for each of the weight's, in order. `compensation` only
/// where there is one.
enum class AdamWRow : std::uint8_t { weight, gradient, first_moment, second_moment, compensation };

/// Its numbers, which follow, formed in double.
enum class AdamWNumber : std::uint8_t {
  gradient_factor,  // unscaling and clipping
  beta1,
  rest1,  // 1 − β1
  beta2,
  rest2,  // 1 − β2
  lr,
  decay,        // 1 − lr·decay; with a compensation lr·decay
  correction1,  // 1 − β1^t
  correction2,  // 1 − β2^t
  eps,
};
inline constexpr std::size_t kAdamWNumbers = 10;

/// AdamW (Loshchilov and Hutter, 2019): decay decoupled and multiplied by the learning rate, ε added after
/// the bias correction. g = gradient · gradient_factor; m = m·β1 + g·rest1; v = v·β2 + (g·g)·rest2; update =
/// ((m/c1)·lr) / (√(v/c2) + ε); w = w·(1 − lr·decay) − update. Every operation is rounded, none is fused; w
/// takes the m and v that are not yet rounded to their storage.
///
/// With a compensation c (Kahan, 1965): s = c − (w·(lr·decay) + update), w' = round(w + s), c' = round(s −
/// (w' − w)). So w + c moves by what the update asks for, though w may not.
///
/// Outputs: weight, first moment, second moment, and where there is one the compensation.
const Expression& adamw_program(bool compensated);

/// Whether sweeps run `program` compiled.
bool runs_compiled(const Expression& program);

}  // namespace mantissa::kernels
