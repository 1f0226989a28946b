// The update programs that sweeps run as compiled code. Sweeps interpret any other program, with the same
// bits, at a quarter to a half of the speed.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "mantissa/kernels/sweep.h"

namespace mantissa::kernels {

/// The first operands of adamw_program(), in order: one element per element of the weight. `compensation`
/// only for the compensated program.
enum class AdamWRow : std::uint8_t { weight, gradient, first_moment, second_moment, compensation };

/// The operands after those: numbers, computed in double.
enum class AdamWNumber : std::uint8_t {
  gradient_factor,  // unscaling and clipping
  beta1,
  rest1,  // 1 − β1
  beta2,
  rest2,  // 1 − β2
  lr,
  decay,        // 1 − lr·decay; lr·decay with a compensation
  correction1,  // 1 − β1^t
  correction2,  // 1 − β2^t
  eps,
};
inline constexpr std::size_t kAdamWNumbers = 10;

/// AdamW (Loshchilov and Hutter, 2019): decay is decoupled and multiplied by the learning rate, and ε is
/// added after the bias correction. g = gradient · gradient_factor; m = m·β1 + g·rest1; v = v·β2 +
/// (g·g)·rest2; update =
/// ((m/c1)·lr) / (√(v/c2) + ε); w = w·(1 − lr·decay) − update. Every operation rounds, and none is fused. w
/// uses m and v before they round to their storage format.
///
/// With a compensation c (Kahan, 1965): s = c − (w·(lr·decay) + update), w' = round(w + s), c' = round(s −
/// (w' − w)). So w + c follows the update even if w does not change.
///
/// Outputs: weight, first moment, second moment, and compensation if `compensated`.
const Expression& adamw_program(bool compensated);

/// Returns true if sweeps run `program` as compiled code.
bool runs_compiled(const Expression& program);

}  // namespace mantissa::kernels
