// RMSNorm. Zhang and Sennrich, Root Mean Square Layer Normalization (2019), as transformers computes it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

/// y[t] = x[t] · rstd[t] · gain, rstd[t] = 1 / √(mean(x[t]²) + eps), all in f32 (f64 if x is f64); y rounds
/// once. With `normalized` below the arithmetic, x[t] · rstd[t] rounds to it before the gain multiplies it,
/// as in the modules of transformers; f64: only the result rounds, as in Transformer Engine. x, y: [tokens,
/// channels], may be the same; gain: [channels]; rstd: [tokens], dense, f32 (f64 in f64). Sums over channels
/// use 16 virtual lanes, an FMA chain in each. With `statistics` below the arithmetic the mean and rstd round
/// to it.
///
/// With several `groups`, as in the norms of queries and keys, each head of a token is normalized separately:
/// x, y: [tokens, groups · channels]; rstd: [tokens, groups]; all heads share the gain. With a `gain_offset`
/// the gain is gain_offset + gain, computed in f32 (f64); Gemma uses 1.
struct RmsNorm {
  std::int64_t channels = 0;
  double eps = 0;
  ConstMatrix x;
  ConstMatrix gain;
  Matrix y;
  Matrix rstd;
  Scalar statistics = Scalar::f64;  // f64: in the arithmetic
  double gain_offset = 0;
  std::int64_t groups = 1;
  Scalar normalized = Scalar::f64;  // f64: in the arithmetic
};
void rmsnorm(const Context& ctx, std::int64_t tokens, const RmsNorm& n);

/// dx[t] = rstd·(g − x̂ · mean(g ∘ x̂)) (+ addend[t]), g = dy ∘ gain, x̂ = x·rstd, in f32, rounded once to
/// dx.type; with several groups, for each group. mean(g ∘ x̂) uses 16 virtual lanes, an FMA chain in each; g −
/// x̂·mean is one FMA. With `normalized` below the arithmetic g rounds to it. The addend may be dx itself if
/// the types are equal. With `statistics` below the arithmetic the mean rounds to it.
struct RmsNormBackward {
  std::int64_t channels = 0;
  ConstMatrix x, gain, rstd, dy;
  ConstMatrix addend;  // data == nullptr: none
  Matrix dx;
  Scalar statistics = Scalar::f64;
  double gain_offset = 0;
  std::int64_t groups = 1;
  Scalar normalized = Scalar::f64;
};
void rmsnorm_backward(const Context& ctx, std::int64_t tokens, const RmsNormBackward& n);

/// dgain += Σ_t dy[t] ∘ x̂[t]: one FMA chain fma(dy, x̂, ·) per block of 256 tokens, blocks into leaves, leaves
/// into dgain (docs/numerics.md, "Sums over tokens"). dgain: [channels], f32 (f64 in f64). With several
/// groups each has its own chain in every block; the chains are added to the leaf in the order of the groups.
/// With `normalized` below the arithmetic x̂ rounds to it, as in the forward pass.
struct RmsNormGain {
  std::int64_t channels = 0;
  ConstMatrix x, rstd, dy;
  Matrix dgain;
  bool accumulate = false;  // false: dgain starts at zero
  std::int64_t groups = 1;
  Scalar normalized = Scalar::f64;
};
void rmsnorm_gain(const Context& ctx, const Extent& extent, const RmsNormGain& n);

}  // namespace mantissa::kernels
