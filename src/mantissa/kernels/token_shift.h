// Token shift: mixtures of each token with its predecessor, as RWKV feeds them to its layers (Peng et al.,
// arXiv 2503.14456).
#pragma once

#include <cstdint>
#include <span>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

/// mixed[j][t] = fma(x[t−1] − x[t], mix[j], x[t]) in f32 (f64 if x is f64), rounded once. The predecessor of
/// the first token of a segment is zero at position 0, else its slot's row of `before` [slots, channels], or
/// of `state` if that is null. The last token of each segment is written to its slot of `state`, unless
/// state.data is null. x, mixed: [tokens, channels]; mix: [channels].
struct TokenShift {
  std::int64_t channels = 0;
  ConstMatrix x;
  std::span<const ConstMatrix> mix;
  std::span<const Matrix> mixed;
  Matrix state = {};        // null: no segment continues another
  ConstMatrix before = {};  // null: `state`
};
/// Throws ShapeError for a segment that continues another without `state` or `before`.
void token_shift(const Context& ctx, const Extent& extent, const TokenShift& s);

/// dx[t] = (Σ_j dy[j][t] − q[t]) + q[t+1], q[t] = Σ_j mix[j] ∘ dy[j][t], with q = 0 after the last token of a
/// segment: sums over j from zero in ascending order, the first of additions, the second a chain of fused
/// multiply-adds. The token before a segment gets no gradient. The arithmetic is f64 if x is.
struct TokenShiftBackward {
  std::int64_t channels = 0;
  std::span<const ConstMatrix> mix, dy;
  Matrix dx;
  bool f64 = false;
  /// q of the token after each segment, in the arithmetic: row after_rows[i] of segment i, or zeros for −1.
  ConstMatrix after = {};
  std::span<const std::int64_t> after_rows = {};  // empty: zeros for all
};
/// Writes q[t] of the token `token` to row `row` of `q`, in the arithmetic.
void token_shift_first(const Context& ctx, const TokenShiftBackward& s, std::int64_t token, Matrix q,
                       std::int64_t row);
void token_shift_backward(const Context& ctx, const Extent& extent, const TokenShiftBackward& s);

/// dmix += Σ_t dy[t] ∘ (x[t−1] − x[t]): one FMA chain per block of 256 tokens, blocks into leaves, leaves
/// into dmix (docs/numerics.md, "Sums over tokens"). dmix: [channels], f32 (f64 in f64). `before` as above.
struct TokenShiftMix {
  std::int64_t channels = 0;
  ConstMatrix x, dy;
  ConstMatrix before = {};  // null: no segment continues another
  Matrix dmix;
  bool accumulate = false;  // false: dmix starts at zero
};
void token_shift_mix(const Context& ctx, const Extent& extent, const TokenShiftMix& s);

}  // namespace mantissa::kernels
