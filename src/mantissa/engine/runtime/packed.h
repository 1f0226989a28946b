// The elements of tensors in packed blocks, for reports.
#pragma once

#include <cstddef>

#include "mantissa/engine/graph/op.h"

namespace mantissa::runtime {

/// Writes elements [from, from + n) of a tensor in packed blocks, row by row: its values under the scale of
/// the tensor.
void unpack_elements(const graph::Argument& packed, std::size_t from, std::size_t n, float* to);

}  // namespace mantissa::runtime
