// Passes over gradients and weights that are the same for every optimizer: norm and finite check, sums over
// micro-batches, changes of format. Updates are sweeps (sweep.h).
#pragma once

#include <cstdint>

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

/// gradient[i] = gradient[i] + contribution[i], a micro-batch's, in the contribution's format (f32 or f64)
/// and rounded to nearest once. Without `accumulate` the contribution, rounded.
void collect_gradient(const Context& ctx, std::int64_t count, const void* contribution,
                      Scalar contribution_type, void* gradient, Scalar gradient_type, bool accumulate);

/// dst[i] = src[i] rounded to nearest to dst_type (exact where it is wider).
void cast(const Context& ctx, std::int64_t count, const void* src, Scalar src_type, void* dst,
          Scalar dst_type);

}  // namespace mantissa::kernels
