// Conversion of tensors to formats that need saturation or scales.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "mantissa/core/numeric/scaled.h"
#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/layout.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

/// dst[i] = src[i] rounded to nearest in dst_type. With `saturate` overflow gives the largest finite value.
/// With `flush_subnormals` results below the smallest normal become zero.
void round_to(const Context& ctx, std::int64_t count, const void* src, Scalar src_type, void* dst,
              Scalar dst_type, bool saturate, bool flush_subnormals);

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

/// Returns the largest magnitude among the finite values of `count` elements; 0 if there are none.
float absolute_maximum(const Context& ctx, std::int64_t count, const void* src, Scalar type);

/// to[i] = from[i] · scale, in f32, rounded to nearest in to.type with saturation. `count` elements, dense.
void quantize_tensor(const Context& ctx, std::int64_t count, ConstMatrix from, Matrix to, float scale);

/// Rounds [rows, width], dense, to blocks as round_block (core/numeric/scaled.h) does, stored in to.type.
/// bf16 represents the results unless a block's scale is below 2^-124 (2^-117 for e5m2 elements). A block
/// lies along a row, starting at its first element. With `along_rows` it lies along a column, starting at the
/// first row of each of `segments` (empty: of the matrix).
void quantize_blocks(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from, Matrix to,
                     BlockFormat format, float tensor_scale, bool along_rows,
                     std::span<const Row> segments = {});

/// Rounds [rows, width], dense, to `blocks`, and stores elements and scales in `to` in the layout of
/// core/tensor/layout.h. Products read the values that quantize_blocks stores as bf16.
void pack_blocks(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from, void* to,
                 const Blocks& blocks, float tensor_scale);

/// How a tensor is stored with scales.
struct Quantize {
  std::optional<BlockFormat> blocks;  // null: one scale for the tensor, elements in to.type
  bool along_rows = false;            // blocks lie along columns
  bool packed = false;                // blocks are stored packed, not as values in to.type
  bool current = false;               // the scale is computed from the tensor's own values
  int margin = 0;                     // binades of headroom of such a scale
};

/// Converts [rows, width], dense, with `scale` (null: no scale and no record of magnitudes). If the scale is
/// not current, the largest magnitude is only recorded in it for later steps.
void quantize(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from, Matrix to,
              const Quantize& how, TensorScale* scale, std::span<const Row> segments = {});

}  // namespace mantissa::kernels
