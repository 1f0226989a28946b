// Passes over gradients and weights that all optimizers share: norm and finite check, accumulation of
// micro-batches, format conversion. Updates are sweeps (sweep.h).
#pragma once

#include <cstdint>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

struct GradientNorm {
  double sum_of_squares = 0;  // of the gradients as stored (scaled)
  bool finite = true;  // every gradient is finite; the sum of squares of f64 gradients may still overflow
};

/// Sum of squares and finite check of one gradient tensor of `count` elements. In f64: squares are rounded,
/// then added over 16 virtual lanes within a chunk of 4096 elements (element i of the chunk in lane i mod 16,
/// lanes joined 8, 4, 2, 1); chunks are added in order.
GradientNorm gradient_norm(const Context& ctx, const void* gradient, Scalar type, std::int64_t count);

/// Sums `count` f32 or f64 values in f64: each chunk of 4096 elements in order, then the chunks in order.
double chunked_sum(const void* values, Scalar type, std::int64_t count);

/// gradient[i] = gradient[i] + contribution[i], the contribution of a micro-batch, computed in the
/// contribution's format (f32 or f64) and rounded once to nearest. Without `accumulate` stores the rounded
/// contribution.
void collect_gradient(const Context& ctx, std::int64_t count, const void* contribution,
                      Scalar contribution_type, void* gradient, Scalar gradient_type, bool accumulate);

/// dst[i] = src[i] rounded to nearest in dst_type (exact if it is wider).
void cast(const Context& ctx, std::int64_t count, const void* src, Scalar src_type, void* dst,
          Scalar dst_type);

}  // namespace mantissa::kernels
