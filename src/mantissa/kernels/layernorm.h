// LayerNorm. Ba, Kiros and Hinton, Layer Normalization (2016).
#pragma once

#include <cstdint>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

/// y[t] = x̂[t] · gain + bias, x̂[t] = (x[t] − mean[t]) · rstd[t], rstd[t] = 1 / √(var[t] + eps), var[t] =
/// mean((x[t] − mean[t])²), all in f32 (f64 if x is f64); y rounds once. x̂ · gain + bias is one FMA. x, y:
/// [tokens, channels], may be the same; gain, bias: [channels]; mean, rstd: [tokens], dense, f32 (f64 in
/// f64). Sums over channels use 16 virtual lanes; the sum of squares is an FMA chain in each lane. With
/// `statistics` below the arithmetic mean, var and rstd round to it.
struct LayerNorm {
  std::int64_t channels = 0;
  double eps = 0;
  ConstMatrix x, gain;
  ConstMatrix bias;  // data == nullptr: none
  Matrix y;
  Matrix mean, rstd;
  Scalar statistics = Scalar::f64;  // f64: in the arithmetic
};
void layernorm(const Context& ctx, std::int64_t tokens, const LayerNorm& n);

/// dx[t] = rstd·((g − mean(g)) − x̂ · mean(g ∘ x̂)) (+ addend[t]), g = dy ∘ gain, in f32, rounded once to
/// dx.type. mean(g) and mean(g ∘ x̂) use 16 virtual lanes; the latter is an FMA chain in each. The last
/// subtraction is one FMA. The addend may be dx itself if the types are equal. With `statistics` below the
/// arithmetic both means round to it.
struct LayerNormBackward {
  std::int64_t channels = 0;
  ConstMatrix x, gain, mean, rstd, dy;
  ConstMatrix addend;  // data == nullptr: none
  Matrix dx;
  Scalar statistics = Scalar::f64;
};
void layernorm_backward(const Context& ctx, std::int64_t tokens, const LayerNormBackward& n);

/// dgain += Σ_t dy[t] ∘ x̂[t]: one FMA chain fma(dy, x̂, ·) per block of 256 tokens, blocks into leaves, leaves
/// into dgain (docs/numerics.md, "Sums over tokens"). dgain: [channels], f32 (f64 in f64). The bias's
/// gradient is token_sum() of dy.
struct LayerNormGain {
  std::int64_t channels = 0;
  ConstMatrix x, mean, rstd, dy;
  Matrix dgain;
  bool accumulate = false;  // false: dgain starts at zero
};
void layernorm_gain(const Context& ctx, const Extent& extent, const LayerNormGain& n);

}  // namespace mantissa::kernels
