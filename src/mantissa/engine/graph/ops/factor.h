// A factor of a matrix product, bound to the memory of an argument.
#pragma once

#include <cstddef>

#include "mantissa/engine/graph/op.h"
#include "mantissa/kernels/gemm.h"

namespace mantissa::graph {

inline kernels::GemmOperand factor(const Argument& a, bool transposed) {
  kernels::GemmOperand o{a.in(), a.operand, transposed, a.unscale()};
  if (a.blocks) {
    const Layout layout{.type = a.type, .blocks = a.blocks};
    o.blocks = a.blocks;
    o.scales = static_cast<const std::byte*>(a.data) + layout.scales_begin(a.rows, a.width);
  }
  if (a.quants) {
    o.quants = a.quants->format;
    o.scales = a.quants->rows_of(a.data, a.rows, a.width).scales;
    if (a.quants->transposed) {
      o.matrix.ld = a.rows;
      o.transposed = !transposed;
    }
  }
  if (transposed) o.interleaved = a.interleaved;
  return o;
}

}  // namespace mantissa::graph
