// Rotary position embedding in the half-split form of transformers. Su et al., RoFormer (2021).
#pragma once

#include <cstdint>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"
#include "mantissa/kernels/rope_scaling.h"

namespace mantissa::kernels {

/// Tables of cosines and sines, [positions, head_dim / 2] each. angle = position · the inverse frequency of
/// rope_scaling.h; both functions are multiplied by the attention factor. All values are the f32 values of
/// transformers (f64 if the tables are f64). cos and sin of an f32 angle are those of core/numeric/sin_cos.h,
/// rounded once; of an f64 angle, those of core/numeric/math-inl.h. With `angles` below the tables' format,
/// position, inverse frequency, angle, cosine and sine each round to it, and so do the products with an
/// attention factor other than 1.
struct RopeTable {
  std::int64_t positions = 0;
  std::int64_t head_dim = 0;
  double theta = 10000;
  RopeScaling scaling = {};
  std::int64_t length = 0;  // sequence length for the kind `dynamic`; 0: `positions`
  Scalar angles = Scalar::f64;
};

/// Fills cos[p, i] and sin[p, i] for positions [0, positions) and i in [0, head_dim / 2). Both have the same
/// type, f32 or f64.
void rope_table(const RopeTable& table, Matrix cos, Matrix sin);

/// For every head: y[i] = x[i]·cos − x[i+h]·sin, y[i+h] = x[i+h]·cos + x[i]·sin, h = head_dim / 2, at the
/// token's position (segment.position + its index in the segment), in f32, rounded once. `inverse` rotates
/// back, which is the gradient. Each of the two sums is a product and an FMA: fma(x[i], cos, −(x[i+h]·sin)).
/// The inverse uses −sin. x, y: [tokens, heads · head_dim], may be the same. f64 if x is f64.
struct Rope {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  bool inverse = false;
  ConstMatrix x, cos, sin;
  Matrix y;
};
void rope(const Context& ctx, const Extent& extent, const Rope& r);

}  // namespace mantissa::kernels
