// Rotary position embedding, half-split form of transformers. Su et al., RoFormer (2021).
#pragma once

#include <cstdint>

#include "mantissa/kernels/context.h"
#include "mantissa/tensor/extent.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::kernels {

/// Fills cos[p, i] and sin[p, i] for positions [0, positions) and i in [0, head_dim / 2): angle = p ·
/// inv_freq[i] with inv_freq = theta^(−2i / head_dim). Both are the f32 values that transformers forms (f64
/// where the tables are f64); the power is the C library's in double, rounded once; cos and sin of the f32
/// angle are those of numeric/sin_cos.h, rounded once (of an f64 angle those of numeric/math-inl.h). Tables
/// are [positions, head_dim / 2], f32 or f64. With `angles` below their format position, inverse frequency,
/// angle, cosine and sine are each rounded to it.
void rope_table(std::int64_t positions, std::int64_t head_dim, double theta, Matrix cos, Matrix sin,
                Scalar angles = Scalar::f64);

/// For every head: y[i] = x[i]·cos − x[i+h]·sin, y[i+h] = x[i+h]·cos + x[i]·sin, h = head_dim / 2, at the
/// token's position (segment.position + its place in the segment), in f32, rounded once. `inverse` rotates
/// back: the gradient. Each of the two sums is mul then FMA: fma(x[i], cos, −(x[i+h]·sin)). For the inverse,
/// of −sin. x, y: [tokens, heads · head_dim], may be the same. f64 where x is f64.
struct Rope {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  bool inverse = false;
  ConstMatrix x, cos, sin;
  Matrix y;
};
void rope(const Context& ctx, const Extent& extent, const Rope& r);

}  // namespace mantissa::kernels
