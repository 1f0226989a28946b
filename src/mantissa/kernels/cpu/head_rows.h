// One row of logits, processed in chunks of the vocabulary: its log-sum-exp and its gradient.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "mantissa/kernels/context.h"
#include "mantissa/numeric/format.h"

namespace mantissa::kernels::head_rows {

/// The running statistics of one token's logits: their maximum, Σ exp(l − max), and Σ exp(l − max)·l. The
/// values belong to the arithmetic's format; a double holds them exactly.
struct Running {
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double weighted = 0;
};

/// logits → cap · tanh(logits / cap), in place.
void soft_cap(const Context& ctx, Scalar type, void* logits, std::size_t n, double cap);

/// Merges the next `n` logits, of `type` (f32 or f64, the arithmetic), into `r`; the last sum only if
/// `entropy` is set. With a `softmax` below the arithmetic the logits (in place), their exponentials and the
/// sums round to it.
void merge(const Context& ctx, Scalar type, void* logits, std::size_t n, bool entropy, Scalar softmax,
           Running& r);

double log_sum_exp(const Context& ctx, Scalar type, const Running& r, Scalar softmax);

/// logits → d · (onehot(id) − exp(logits − lse)), in place, times 1 − (logits / soft_cap)² for capped logits.
/// `id` is relative to the first of these `n`; outside [0, n) the id is in another chunk.
void gradient(const Context& ctx, Scalar type, void* logits, std::size_t n, double lse, double d_log_prob,
              std::int64_t id, Scalar softmax, double soft_cap);

}  // namespace mantissa::kernels::head_rows
