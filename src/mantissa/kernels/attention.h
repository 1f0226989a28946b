// Causal grouped-query attention, tiled, with memory linear in the sequence length. Dao et al.,
// FlashAttention-2 (2023).
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/kernels/context.h"
#include "mantissa/numeric/factor.h"
#include "mantissa/tensor/extent.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::kernels {

/// Keys of one block of the online softmax, counted from the segment's start (position 0). The running
/// maximum, and with it the rounding of the probabilities, moves once per block.
inline constexpr std::int64_t kKeyBlock = 512;
/// Queries of one block of the backward pass, counted from the segment's start: the chains of dK and dV.
inline constexpr std::int64_t kQueryBlock = 128;

struct AttentionShape {
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // divides heads; query head h reads key head h / (heads / kv_heads)
  std::int64_t head_dim = 0;
  double scale = 0;  // of the scores, 1/√head_dim
};

/// Where the keys and values of a segment's earlier positions are. Without a cache (`slots == 0`) k and v
/// hold the tokens themselves, at the token axis' places, and every segment starts at position 0. With one, k
/// and v are [slots, capacity, kv_heads · head_dim], and token t of a segment reads positions 0 … position +
/// t of its slot.
struct KeyCache {
  std::int64_t slots = 0;
  std::int64_t capacity = 0;
};

/// out[t, h] = Σ_j P[t, j] v[j] with P = softmax(scale · q k), j ≤ position of t, over the keys of t's
/// segment. q, out: [tokens, heads · head_dim]; k, v: [tokens, kv_heads · head_dim] or the cache; lse:
/// [tokens, heads], f32 (f64 in f64). Products of q·k are one FMA chain over head_dim in f32; scores and
/// softmax are f32; per key block p = exp(s − running maximum) is rounded to `operand` before P·V (one chain
/// per key block, then added to the rescaled sum); the denominator is the sum of the unrounded values over 16
/// virtual lanes (lane = key index mod 16); the output is rounded once, to out.type. q, k and v are rounded
/// to `operand`, too, where it does not hold them; in several parts all are split, and every product is one
/// chain over the products of parts. With a `softmax` below the arithmetic the scaled scores, p and the
/// denominator, then the sum of the rounded p, are rounded to it.
struct Attention {
  AttentionShape shape;
  ConstMatrix q, k, v;
  Matrix out;
  Matrix lse;
  Factor operand = Scalar::f32;  // format of P (and of dS in the backward) as a matmul operand
  KeyCache cache = {};
  Scalar softmax = Scalar::f64;  // f64: in the arithmetic
};

std::size_t attention_workspace(const Context& ctx, const AttentionShape& shape, std::int64_t tokens,
                                std::int64_t longest_row, Scalar arithmetic, int parts = 1);
void attention(const Context& ctx, const Extent& extent, const Attention& a);

/// Gradients of `attention` (without a cache): P recomputed from lse, D = Σ dO∘O, dS = P∘(dO·Vᵀ − D)·scale,
/// all in f32; P and dS are rounded to `operand` as matmul operands; dQ = dS·K, dK = dSᵀ·Q, dV = Pᵀ·dO. dQ:
/// key blocks of 512 in order, one chain each. dK and dV: query heads of the group in order, within one query
/// blocks of 128 in order, one chain each. Operands in several parts are split as in the forward. With a
/// `softmax` below the arithmetic the scaled scores, P and dS are rounded to it.
struct AttentionBackward {
  AttentionShape shape;
  ConstMatrix q, k, v, out, lse, dout;
  Matrix dq, dk, dv;
  Factor operand = Scalar::f32;
  Scalar softmax = Scalar::f64;
};

std::size_t attention_backward_workspace(const Context& ctx, const AttentionShape& shape, std::int64_t tokens,
                                         std::int64_t longest_row, Scalar arithmetic, int parts = 1);
void attention_backward(const Context& ctx, const Extent& extent, const AttentionBackward& a);

}  // namespace mantissa::kernels
