// The optimizer's sweeps: norm and finite check of gradients, and AdamW with the low-precision copy in one
// pass.
#pragma once

#include <cstdint>
#include <optional>

#include "mantissa/kernels/context.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::kernels {

struct GradientNorm {
  double sum_of_squares = 0;  // of the gradients as stored (scaled)
  bool finite = true;  // every gradient is; the sum of squares of f64 gradients may overflow all the same
};

/// Sum of squares and finite check of one gradient tensor of `count` elements. f64: squares are rounded, then
/// added over 16 virtual lanes within a chunk of 4096 elements (element i of the chunk to lane i mod 16,
/// lanes joined 8, 4, 2, 1); chunks are added in order.
GradientNorm gradient_norm(const Context& ctx, const void* gradient, Scalar type, std::int64_t count);

/// Sum of `count` f32 or f64 values in f64: chunks of 4096 elements each summed in order, chunks added in
/// order.
double chunked_sum(const void* values, Scalar type, std::int64_t count);

/// What the random bits of stochastic rounding are keyed by, beside the element's index: the run's seed, the
/// attempted step, and hash_name() of the parameter's name.
struct RoundingKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t name_hash = 0;
};

/// AdamW (Loshchilov and Hutter, 2019): decay decoupled and multiplied by the learning rate, ε added after
/// the bias correction. g = gradient · gradient_factor (unscaling and clipping); m = β1·m + (1−β1)·g; v =
/// β2·v + (1−β2)·(g·g); w = w·(1 − lr·decay) − (lr·(m/c1)) / (√(v/c2) + ε), c1 = 1 − β1^t, c2 = 1 − β2^t.
/// Arithmetic in f32 (f64 where the master is f64): the factors (1−β1), (1−β2), (1 − lr·decay), c1 and c2 are
/// formed in double and rounded once, then every operation is rounded, none is fused; to `arithmetic`, too,
/// where that is lower, but for w + s and what is lost there. w takes the m and v that are not yet rounded to
/// their storage. What is stored in fewer bits than the arithmetic is rounded as `rounding` says,
/// stochastically with a stream of random bits each for the weight, its two moments and its compensation. The
/// copy is the stored master, rounded to nearest.
///
/// With a compensation c (Kahan, 1965): s = c − (lr·decay·w + update), w' = round(w + s), c' = round(s − (w'
/// − w)), the factor lr·decay formed in double. So w + c moves by what the update asks for, though w may not.
///
/// Writes master, moments and, where there are some, the compensation and the copy in the compute format, in
/// one sweep.
struct AdamW {
  std::int64_t count = 0;
  void* master = nullptr;
  Scalar master_type = Scalar::f32;
  void* copy = nullptr;  // may be null
  Scalar copy_type = Scalar::f32;
  const void* gradient = nullptr;
  Scalar gradient_type = Scalar::f32;
  void* first_moment = nullptr;
  void* second_moment = nullptr;
  Scalar moment_type = Scalar::f32;
  void* compensation = nullptr;  // of master_type; may be null
  Rounding rounding = Rounding::nearest;
  Scalar arithmetic = Scalar::f64;  // what the result of every operation is rounded to; f64: not at all
  RoundingKey key{};
  double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
  double gradient_factor = 1;
  std::int64_t t = 1;  // of applied updates, from 1
};
void adamw(const Context& ctx, const AdamW& u);

/// A weight that does not fit the format that it is stored in.
struct WeightOverflow {
  std::int64_t element = 0;
  double value = 0;  // before it is rounded
  friend bool operator==(const WeightOverflow&, const WeightOverflow&) = default;
};

/// The first weight that adamw(ctx, u) would store as inf or nan, if there is one. Reads only; what `u`
/// points at stays as it is.
std::optional<WeightOverflow> find_weight_overflow(const Context& ctx, const AdamW& u);

/// gradient[i] = gradient[i] + contribution[i], a micro-batch's, in the contribution's format (f32 or f64)
/// and rounded to nearest once. Without `accumulate` the contribution, rounded.
void collect_gradient(const Context& ctx, std::int64_t count, const void* contribution,
                      Scalar contribution_type, void* gradient, Scalar gradient_type, bool accumulate);

/// dst[i] = src[i] rounded to nearest to dst_type (exact where it is wider).
void cast(const Context& ctx, std::int64_t count, const void* src, Scalar src_type, void* dst,
          Scalar dst_type);

}  // namespace mantissa::kernels
