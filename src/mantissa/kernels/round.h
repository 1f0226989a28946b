// Rounding of tensors to formats: to nearest, and as activations with a rounding of their own.
#pragma once

#include <cstdint>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

/// dst[i] = src[i] · scale, in f32 (f64 if a type is f64), rounded to nearest in dst_type. With `saturate`
/// overflow gives the largest finite value. With `flush_subnormals` results below the smallest normal become
/// zero.
void round_tensor(const Context& ctx, std::int64_t count, const void* src, Scalar src_type, void* dst,
                  Scalar dst_type, bool saturate, bool flush_subnormals, float scale = 1);

/// The rounding of activations that have a rounding of their own: stochastic, with the random bits of (seed,
/// `name`, sequence) at position · width + feature, or toward zero.
struct ActivationRounding {
  Rounding rounding = Rounding::nearest;
  std::uint64_t name = 0;  // hash_name() of the value
  bool saturate = false, flush_subnormals = false;
};

/// to[i] = from[i] rounded to to.type. `from` is f32. Both are dense, [tokens, width], or [rows, width] for
/// the last tokens of the extent's rows. The bits do not depend on the rest of the batch.
void round_activations(const Context& ctx, const Extent& extent, std::int64_t rows, std::int64_t width,
                       ConstMatrix from, Matrix to, const ActivationRounding& how);

}  // namespace mantissa::kernels
