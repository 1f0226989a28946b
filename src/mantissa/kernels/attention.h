// Tiled causal grouped-query attention with memory linear in the sequence length. Dao et al.,
// FlashAttention-2 (2023).
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/factor.h"
#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"
#include "mantissa/kernels/dropout.h"

namespace mantissa::kernels {

/// Keys per block of the online softmax, counted from the segment's start (position 0). The running maximum,
/// and with it the rounding of the probabilities, changes once per block.
inline constexpr std::int64_t kKeyBlock = 512;
/// Queries per block of the backward pass, counted from the segment's start. They determine the sums of dK
/// and dV.
inline constexpr std::int64_t kQueryBlock = 128;

struct AttentionShape {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // divides heads; query head h uses key head h / (heads / kv_heads)
  std::int64_t head_dim = 0;
  double scale = 0;  // factor of q·k, usually 1/√head_dim
  std::int64_t window =
      0;                // a query attends to its own key and the window − 1 before it; 0: to all before it
  double soft_cap = 0;  // c > 0: the score is c·tanh(scale·q·k / c); 0: scale·q·k
};

/// The location of the keys and values of a segment's earlier positions. Without a cache (`slots == 0`) k and
/// v hold the tokens themselves, in the order of the token axis, and every segment starts at position 0. With
/// a cache, k and v are [slots, capacity, kv_heads · head_dim], and token t of a segment attends to positions
/// 0 … position + t of its slot.
struct KeyCache {
  std::int64_t slots = 0;
  std::int64_t capacity = 0;
};

/// Keys of other tokens than the queries, such as an earlier block of their sequence: rows [0, count) of k
/// and v, the first of which is `distance` positions before the first query. Key blocks start at that row.
/// The extent has one segment then, the queries. `count` 0: the keys of each segment's own tokens.
struct KeySpan {
  std::int64_t count = 0;
  std::int64_t distance = 0;
};

/// out[t, h] = Σ_j P[t, j] v[j] with P = softmax(score(q, k)) over the visible keys of t's segment: for t at
/// position p the keys at positions j ≤ p, and under a window w only those with p − j < w. q, out: [tokens,
/// heads · head_dim]; k, v: [tokens, kv_heads · head_dim] or the cache; lse: [tokens, heads], f32 (f64 in
/// f64).
///
/// Order and rounding:
/// - q·k is one FMA chain over head_dim, then multiplied by `scale`. With a soft cap the score is then
/// divided by the cap, passed through tanh and multiplied by the cap. Each operation rounds to the
/// arithmetic.
/// - Key blocks have kKeyBlock keys and start at position 0 for every window. A block without a visible key
/// is skipped. A masked key contributes to no sum, even if it or its value is not finite.
/// - In each block p = exp(score − running maximum) rounds to `operand` before P·V, which is one chain over
/// the block's visible keys and is added to the rescaled sum. The denominator is the sum of the unrounded
/// values over 16 virtual lanes (lane = position mod 16).
/// - The output rounds once, to out.type.
/// - q, k and v also round to `operand` if it cannot represent them. With several parts all of them are
/// split, and every product is one chain over the products of parts, smallest terms first. Among products of
/// equally small terms, those with the smaller part of K, V in dO·V, P and dS come first.
/// - With a `softmax` below the arithmetic, the scores (after the cap), p, and the denominator, now the sum
/// of the rounded p, round to it.
///
/// In tile order (SumOrder::tile) a tile sum replaces each chain. Its terms split into blocks of kTileBlock.
/// A block is one FMA chain from zero over its even and one over its odd terms, in ascending order. The sum
/// of the two is added to the tile sum, which starts at +0. The terms of q·k are counted from the head's
/// first component, and those of P·V from the key block's start, even if its first keys are masked. With
/// several parts each product of parts is a tile sum of its own, and these sums are added in the order above.
/// f64 throws DtypeError.
///
/// In the order of a card (SumOrder::card) the same terms are numbered alike, and the groups of the card are
/// added to its accumulator instead (core/numeric/card_sum.h). Masked terms are absent. q, k, v, P, dO and dS
/// have the format of `operand`, in one part, which the card must multiply.
///
/// With `dropout` P becomes P·factor, or 0 if it is dropped, after the denominator has its terms and before
/// it rounds to `operand`; in the backward pass the products dO·V too. The bits of query position p, head h
/// and key position j are those at (p · heads + h) · 2^28 + j of the query's sequence.
///
/// With `merge`, `out` (in the arithmetic) and `lse` hold the results o₁ and l₁ over other keys, and receive
/// those over both. With o₂ and l₂ of this span, m = max(l₁, l₂) and wᵢ = exp(lᵢ − m): lse = m + log(w₁ +
/// w₂), out = (o₁·w₁ + o₂·w₂) / (w₁ + w₂), where o₂·w₂ rounds and the rest of the numerator is fused. A query
/// that attends to no key of a span has l = −inf there, and its other result stays as it is.
struct Attention {
  AttentionShape shape;
  ConstMatrix q, k, v;
  Matrix out;
  Matrix lse;
  Factor operand = Scalar::f32;  // format of P (and of dS in the backward) as a matmul operand
  Accumulator accumulator = {};  // its order and its card; sums are not rounded otherwise
  KeyCache cache = {};
  Scalar softmax = Scalar::f64;  // f64: in the arithmetic
  KeySpan span = {};
  bool merge = false;  // with a span: see above
  Dropout dropout = {};
};

std::size_t attention_workspace(const Context& ctx, const AttentionShape& shape, std::int64_t tokens,
                                std::int64_t longest_row, Scalar arithmetic, int parts = 1);
void attention(const Context& ctx, const Extent& extent, const Attention& a);

/// Gradients of `attention` (without a cache). Scores are recomputed as in the forward pass, and P from the
/// scores and lse; D = Σ dO∘O; dS = P∘(dO·Vᵀ − D)·scale, with a soft cap P∘(dO·Vᵀ − D)·(1 − tanh²)·scale from
/// the unrounded tanh. P and dS round to `operand` as matmul operands; dQ = dS·K, dK = dSᵀ·Q, dV = Pᵀ·dO. dQ:
/// key blocks of kKeyBlock in order, one chain each. dK and dV: query heads of the group in order, and within
/// a head query blocks of kQueryBlock in order, one chain each. Chains run over visible pairs; blocks without
/// one are skipped. Operands in several parts are split as in the forward pass. With a `softmax` below the
/// arithmetic the scores, P and dS round to it.
///
/// In tile order a tile sum replaces each chain, as in the forward pass. The terms of dO·V are counted from
/// the head's first component, those of dQ from the key block's start, and those of dK and dV from the query
/// block's start. D is the same in both orders.
///
/// With a span, `out` and `lse` are those over all keys of the queries, query blocks start at the first
/// query, and dk and dv are the contributions of these queries to the span's keys: rows [0, count).
struct AttentionBackward {
  AttentionShape shape;
  ConstMatrix q, k, v, out, lse, dout;
  Matrix dq, dk, dv;
  Factor operand = Scalar::f32;
  Accumulator accumulator = {};
  Scalar softmax = Scalar::f64;
  KeySpan span = {};
  bool add_dq = false;  // dq, in the arithmetic, continues the sums over earlier keys
  Dropout dropout = {};
};

std::size_t attention_backward_workspace(const Context& ctx, const AttentionShape& shape, std::int64_t tokens,
                                         std::int64_t longest_row, Scalar arithmetic, int parts = 1);
void attention_backward(const Context& ctx, const Extent& extent, const AttentionBackward& a);

}  // namespace mantissa::kernels
