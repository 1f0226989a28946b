// Rotary position embedding, half-split form of transformers. Su et al., RoFormer (2021).
#pragma once

#include <cstdint>

#include "mantissa/kernels/context.h"
#include "mantissa/kernels/rope_scaling.h"
#include "mantissa/tensor/extent.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::kernels {

/// Tables of cosines and sines, [positions, head_dim / 2] each. angle = position · the inverse frequency of
/// rope_scaling.h, and both functions are multiplied by the attention factor. All are the f32 values that
/// transformers forms (f64 where the tables are f64); cos and sin of the f32 angle are those of
/// numeric/sin_cos.h, rounded once (of an f64 angle those of numeric/math-inl.h). With `angles` below their
/// format position, inverse frequency, angle, cosine and sine are each rounded to it, and the products with
/// an attention factor other than 1.
struct RopeTable {
  std::int64_t positions = 0;
  std::int64_t head_dim = 0;
  double theta = 10000;
  RopeScaling scaling = {};
  std::int64_t length = 0;  // of the sequences, for the kind `dynamic`; 0: `positions`
  Scalar angles = Scalar::f64;
};

/// Fills cos[p, i] and sin[p, i] for positions [0, positions) and i in [0, head_dim / 2): f32 or f64, of one
/// type.
void rope_table(const RopeTable& table, Matrix cos, Matrix sin);
/// The same without scaling.
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
