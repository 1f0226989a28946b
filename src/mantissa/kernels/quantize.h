// Tensors into formats that need more than a conversion: with saturation, or with scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "mantissa/kernels/context.h"
#include "mantissa/numeric/scaled.h"
#include "mantissa/tensor/extent.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::kernels {

/// dst[i] = src[i] rounded to nearest to dst_type; what is too large becomes the largest finite value where
/// `saturate`, and what lies below the normal values zero where `flush_subnormals`.
void round_to(const Context& ctx, std::int64_t count, const void* src, Scalar src_type, void* dst,
              Scalar dst_type, bool saturate, bool flush_subnormals);

/// How activations are rounded that have a rounding of their own: stochastically with the random bits of
/// (seed, `name`, sequence) at position · width + feature, or toward zero.
struct ActivationRounding {
  Rounding rounding = Rounding::nearest;
  std::uint64_t name = 0;  // hash_name() of what is rounded
  bool saturate = false, flush_subnormals = false;
};

/// to[i] = from[i] rounded to to.type. from is f32, both are dense, [tokens, width], or [rows, width] of the
/// last tokens of the extent's rows. Bits do not depend on what else is in the batch.
void round_activations(const Context& ctx, const Extent& extent, std::int64_t rows, std::int64_t width,
                       ConstMatrix from, Matrix to, const ActivationRounding& how);

/// The largest magnitude among the finite ones of `count` elements; 0 where there is none.
float absolute_maximum(const Context& ctx, std::int64_t count, const void* src, Scalar type);

/// to[i] = from[i] · scale, in f32, rounded to nearest to to.type and saturated. `count` elements, dense.
void quantize_tensor(const Context& ctx, std::int64_t count, ConstMatrix from, Matrix to, float scale);

/// Blocks of [rows, width], dense, as round_block (numeric/scaled.h) makes them, stored in to.type (bf16
/// holds them but where a block's scale is below 2^-124, 2^-117 of e5m2). A block lies along a row, from its
/// first element on; or `along_rows`, column by column, from the beginning of each of `segments` on (empty:
/// of the matrix).
void quantize_blocks(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from, Matrix to,
                     BlockFormat format, float tensor_scale, bool along_rows,
                     std::span<const Row> segments = {});

/// How a tensor is stored under scales.
struct Quantize {
  std::optional<BlockFormat> blocks;  // none: one scale, in to.type
  bool along_rows = false;            // blocks lie across rows
  bool current = false;               // the tensor's scale is made from itself
  int margin = 0;                     // binades that such a scale leaves free
};

/// [rows, width], dense, under `scale` (null: none, and nothing is kept of the magnitudes). Where the scale
/// is not current, the largest magnitude is only kept in it, for later.
void quantize(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from, Matrix to,
              const Quantize& how, TensorScale* scale, std::span<const Row> segments = {});

}  // namespace mantissa::kernels
