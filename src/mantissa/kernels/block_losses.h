// Counts of what rounding a matrix to blocks lost. Nothing here changes a value.
#pragma once

#include <cstdint>
#include <limits>

#include "mantissa/core/tensor/layout.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/loss_count.h"

namespace mantissa::kernels {

/// A matrix that pack_blocks() (kernels/scaled.h) wrote.
struct PackedMatrix {
  const void* data = nullptr;
  std::int64_t rows = 0, width = 0;
  Blocks blocks;
  float tensor_scale = 1;
};

struct BlockLosses {
  /// flushed: not zero before, zero after; saturated: beyond the largest element by more than half a last
  /// place under the scale of its block. Elements of blocks with a value that is not finite count as neither.
  RangeCount range;
  /// Of the scales of blocks that are not zero, with the tensor's.
  float least_scale = std::numeric_limits<float>::infinity(), most_scale = 0;
};

/// Counts for `values`, dense, from which `packed` was written.
BlockLosses count_block_losses(const Context& ctx, ConstMatrix values, const PackedMatrix& packed);

}  // namespace mantissa::kernels
