// The steps of RWKV-7's time mixing within heads, before and after its recurrence (Peng et al.,
// arXiv 2503.14456). Each reads and writes every value once.
#pragma once

#include <cstdint>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

/// The largest head that these kernels take.
inline constexpr std::int64_t kMostHeadChannels = 1024;

/// The vectors that the recurrence removes and adds: for each head
///   κ = k∘k_k,  n = 1 / max(‖κ‖₂, 1e-12),  κ̂ = κ·n,
///   alpha = −κ̂,  beta = κ̂∘a,  key = k∘(1 + (a − 1)∘k_a).
/// k, a, alpha, beta, key: [tokens, heads · channels]; k_k, k_a: [heads · channels]; n: [tokens, heads],
/// dense. The arithmetic is f32, or f64 if k is f64; results round once. ‖κ‖² is a sum over 16 virtual lanes,
/// an FMA chain in each; 1 + (a − 1)·k_a is one FMA.
struct RwkvKeys {
  std::int64_t heads = 0, channels = 0;  // of each head
  ConstMatrix k, a, k_k, k_a;
  Matrix alpha, beta, key, n;
};
void rwkv_keys(const Context& ctx, std::int64_t tokens, const RwkvKeys& s);

/// With c = a∘dbeta − dalpha, p = Σ c∘κ̂ over the head (0 where n is 1e12, its bound) and dκ = (c − κ̂·p)·n:
///   dk = dκ∘k_k + dkey∘(1 + (a − 1)∘k_a),  da = κ̂∘dbeta + dkey∘k∘k_a,
/// and the terms of the sums over tokens dk_k = Σ dκ∘k, dk_a = Σ dkey∘k∘(a − 1), one row for each token.
struct RwkvKeysBackward {
  std::int64_t heads = 0, channels = 0;
  ConstMatrix k, a, k_k, k_a, n, dalpha, dbeta, dkey;
  Matrix dk, da, dk_k, dk_a;
};
void rwkv_keys_backward(const Context& ctx, std::int64_t tokens, const RwkvKeysBackward& s);

/// The result of the time mixing: for each head, with x̂ the normalized y as in LayerNorm over the head,
///   o = (x̂∘gain + bias + s·v)∘g,  s = Σ r∘key∘r_k.
/// y, r, key, v, g, o: [tokens, heads · channels]; r_k, gain, bias: [heads · channels]; mean, rstd, s:
/// [tokens, heads], dense. s sums (r·key)·r_k over 16 virtual lanes, an FMA chain in each.
struct RwkvOutput {
  std::int64_t heads = 0, channels = 0;
  double eps = 0;
  ConstMatrix y, r, key, v, g, r_k, gain, bias;
  Matrix o, mean, rstd, s;
};
void rwkv_output(const Context& ctx, std::int64_t tokens, const RwkvOutput& c);

/// With e = do∘g: dg = do∘(x̂∘gain + bias + s·v), dv = e·s, ds = Σ e∘v, dr = ds·key∘r_k, dkey = ds·r∘r_k, dy
/// as in LayerNorm for the gradient e, and the terms of the sums over tokens dgain = Σ e∘x̂, dbias = Σ e, dr_k
/// = Σ ds·r∘key, one row for each token.
struct RwkvOutputBackward {
  std::int64_t heads = 0, channels = 0;
  ConstMatrix y, r, key, v, g, r_k, gain, bias, mean, rstd, s, dout;
  Matrix dy, dr, dkey, dv, dg, dr_k, dgain, dbias;
};
void rwkv_output_backward(const Context& ctx, std::int64_t tokens, const RwkvOutputBackward& c);

}  // namespace mantissa::kernels
