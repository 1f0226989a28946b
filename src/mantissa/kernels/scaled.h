// Conversion of tensors to formats with scales (core/numeric/scaled.h).
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

/// Returns the largest magnitude among the finite values of `count` elements; 0 if there are none.
float absolute_maximum(const Context& ctx, std::int64_t count, const void* src, Scalar type);

/// How a matrix is rounded to blocks, besides the format.
struct BlockRounding {
  BlockScaling scaling = {};
  /// Null: elements round to nearest. Else stochastically, by the bits of the tokens of this batch under the
  /// name hash `name` (token_bits.h). The matrix has a row for each token, and no square scales.
  const Extent* stochastic = nullptr;
  std::uint64_t name = 0;
  /// Set: tokens are transformed first (hadamard.h), with these signs. Needs blocks along tokens.
  std::optional<std::uint16_t> hadamard = {};
};

/// Rounds [rows, width], dense, to blocks as round_blocks (core/numeric/scaled.h) does, stored in to.type.
/// bf16 represents the results unless a block's scale is below 2^-124 (2^-117 for e5m2 elements). A block
/// lies along a row, starting at its first element. With `along_rows` it lies along a column, starting at the
/// first row of each of `segments` (empty: of the matrix); then scales are not shared by squares.
void round_to_blocks(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from, Matrix to,
                     BlockFormat format, float tensor_scale, bool along_rows,
                     std::span<const Row> segments = {}, const BlockRounding& how = {});

/// Rounds [rows, width], dense, to `blocks`, and stores elements and scales in `to` in the layout of
/// core/tensor/layout.h: a scale for each block, also where several share one. Products read the values that
/// round_to_blocks stores as bf16. Blocks along columns round to nearest, without a transform.
void pack_blocks(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from, void* to,
                 const Blocks& blocks, float tensor_scale, const BlockRounding& how = {});

/// How a tensor is stored with scales.
struct StoreScaled {
  std::optional<BlockFormat> blocks;  // null: one scale for the tensor, elements in to.type
  bool along_rows = false;            // blocks lie along columns
  bool packed = false;                // blocks are stored packed, not as values in to.type
  bool current = false;               // the scale is computed from the tensor's own values
  int margin = 0;                     // binades of headroom of such a scale
  BlockRounding rounding = {};        // without blocks: only whether and how it is stochastic
};

/// Converts [rows, width], dense, with `scale` (null: no scale and no record of magnitudes). If the scale is
/// not current, the largest magnitude is only recorded in it for later steps. Magnitudes are those after a
/// transform.
void store_scaled(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from, Matrix to,
                  const StoreScaled& how, TensorScale* scale, std::span<const Row> segments = {});

}  // namespace mantissa::kernels
