// Attention and its gradient as the formulas say, in double, one query at a time. The kernels are judged by
// this.
#pragma once

#include <functional>

#include "mantissa/kernels/attention.h"
#include "mantissa/tensor/extent.h"

namespace mantissa::kernels::reference {

/// How a matmul operand is rounded: P, and dS in the backward. Empty: not at all.
using OperandRounding = std::function<double(double)>;

/// q, out: [tokens, heads · head_dim]; k, v: [tokens, kv_heads · head_dim] or [slots, capacity, kv_heads ·
/// head_dim]; lse: [tokens, heads]; dense rows. With `round`, p = exp(s − running maximum of its key block)
/// is rounded before P·V, and the denominator is the sum of the unrounded values.
void attention(const Extent& extent, const AttentionShape& shape, const double* q, const double* k,
               const double* v, double* out, double* lse, const KeyCache& cache = {},
               const OperandRounding& round = {});

/// dq, dk, dv from dout, with the `out` and `lse` of the forward pass. Shapes as above, without a cache.
void attention_backward(const Extent& extent, const AttentionShape& shape, const double* q, const double* k,
                        const double* v, const double* out, const double* lse, const double* dout, double* dq,
                        double* dk, double* dv, const OperandRounding& round = {});

}  // namespace mantissa::kernels::reference
