// One row of logits, processed in chunks of the vocabulary: its log-sum-exp and its gradient.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "mantissa/core/numeric/format.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels::head_rows {

/// The running statistics of one token's logits: their maximum, Σ exp(l − max), and Σ exp(l − max)·l. The
/// values belong to the arithmetic's format; a double holds them exactly.
struct Running {
  double max = -std::numeric_limits<double>::infinity();
  double sum = 0;
  double weighted = 0;
  std::int64_t top = -1;  // the first entry with the maximum, by head.cpp
};

/// logits → cap · tanh(logits / cap), in place.
void soft_cap(const Context& ctx, Scalar type, void* logits, std::size_t n, double cap);

/// Merges the next `n` logits, of `type` (f32 or f64, the arithmetic), into `r`; the last sum only if
/// `entropy` is set. With a `softmax` below the arithmetic the logits (in place), their exponentials and the
/// sums round to it.
void merge(const Context& ctx, Scalar type, void* logits, std::size_t n, bool entropy, Scalar softmax,
           Running& r);

/// Returns the place of the first of `n` logits that equals `value`, or −1.
std::int64_t first_of(Scalar type, const void* logits, std::int64_t n, double value);

double log_sum_exp(const Context& ctx, Scalar type, const Running& r, Scalar softmax);

/// The gradients that a token's logits receive.
struct Upstream {
  double log_prob = 0;       // dL/dlog_prob
  double entropy = 0;        // dL/dentropy; 0: `entropy_value` is not read
  double entropy_value = 0;  // the entropy
  double l2wrap = 0;         // share of the logit `top` that its gradient gets, times −dL/dlog_prob
  std::int64_t top = -1;     // relative to the first logit, as the id
  double z_loss = 0;         // weight of lse², times −dL/dlog_prob; only without `entropy`
};

/// logits → d · (onehot(id) − p) − e · p · (log p + H) with log p = logits − lse and p = exp(log p), in
/// place, or with a z_loss d · onehot(id) − d · (1 + 2 · z_loss · lse) · p; d and e are the gradients of the
/// log-probability and of the entropy H. For capped logits, times 1 − (logits / soft_cap)². `id` is relative
/// to the first of these `n`; outside [0, n) the id is in another chunk, and so is the top.
void gradient(const Context& ctx, Scalar type, void* logits, std::size_t n, double lse,
              const Upstream& upstream, std::int64_t id, Scalar softmax, double soft_cap);

}  // namespace mantissa::kernels::head_rows
