// Rotary position embedding in the forms of transformers. Su et al., RoFormer (2021).
#pragma once

#include <cstdint>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"
#include "mantissa/kernels/rope_scaling.h"

namespace mantissa::kernels {

/// Tables of cosines and sines, [positions, rotated / 2] each. angle = position · the inverse frequency of
/// rope_scaling.h; both functions are multiplied by the attention factor. All values are the f32 values of
/// transformers (f64 if the tables are f64). cos and sin of an f32 angle are those of core/numeric/sin_cos.h,
/// rounded once; of an f64 angle, those of core/numeric/math-inl.h. With `angles` below the tables' format,
/// position, inverse frequency, angle, cosine and sine each round to it, and so do the products with an
/// attention factor other than 1.
struct RopeTable {
  std::int64_t positions = 0;
  std::int64_t rotated = 0;  // values of a head that are rotated; the dimension in theta^(−2i / rotated)
  double theta = 10000;
  RopeScaling scaling = {};
  std::int64_t length = 0;  // sequence length for the kind `dynamic`; 0: `positions`
  Scalar angles = Scalar::f64;
};

/// Fills cos[p, i] and sin[p, i] for positions [0, positions) and i in [0, rotated / 2). Both have the same
/// type, f32 or f64.
void rope_table(const RopeTable& table, Matrix cos, Matrix sin);

/// The values of a head that are rotated together: (a, b) is (x[i], x[i + rotated / 2]), or two neighbours,
/// (x[2i], x[2i + 1]).
enum class RopePairs : std::uint8_t { halves, neighbours };

/// For pair i < rotated / 2 of every head: (a, b) becomes (a·cos[i] − b·sin[i], b·cos[i] + a·sin[i]) at the
/// token's position (segment.position + its index in the segment), in f32, rounded once. `inverse` rotates
/// back, which is the gradient. Each of the two sums is a product and an FMA: fma(a, cos, −(b·sin)). The
/// inverse uses −sin. The values from `rotated` on are only rounded to y's format. x, y: [tokens, heads ·
/// head_dim], may be the same. f64 if x is f64.
struct Rope {
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  bool inverse = false;
  ConstMatrix x, cos, sin;
  Matrix y;
  std::int64_t rotated = 0;  // even; 0: head_dim
  RopePairs pairs = RopePairs::halves;
};
void rope(const Context& ctx, const Extent& extent, const Rope& r);

}  // namespace mantissa::kernels
