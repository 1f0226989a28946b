// Attention and its gradient by their formulas, in double, one query at a time: tests compare the kernels
// with it.
#pragma once

#include <functional>

#include "mantissa/kernels/attention.h"
#include "mantissa/tensor/extent.h"

namespace mantissa::kernels::reference {

/// Rounds a number: a matmul operand (P, and dS in the backward), or a number inside the softmax. Empty: does
/// not round.
using OperandRounding = std::function<double(double)>;

/// q, out: [tokens, heads · head_dim]; k, v: [tokens, kv_heads · head_dim] or [slots, capacity, kv_heads ·
/// head_dim]; lse: [tokens, heads]; dense rows. With `round`, p = exp(s − running maximum of its key block)
/// is rounded before P·V, and the denominator is the sum of the unrounded values. With `softmax` scores
/// (after the soft cap), p and the denominator, then the sum of the rounded p, are rounded.
void attention(const Extent& extent, const AttentionShape& shape, const double* q, const double* k,
               const double* v, double* out, double* lse, const KeyCache& cache = {},
               const OperandRounding& round = {}, const OperandRounding& softmax = {});

/// dq, dk, dv from dout, with the `out` and `lse` of the forward pass. Shapes as above, without a cache. With
/// `softmax` scores, P and dS are rounded.
void attention_backward(const Extent& extent, const AttentionShape& shape, const double* q, const double* k,
                        const double* v, const double* out, const double* lse, const double* dout, double* dq,
                        double* dk, double* dv, const OperandRounding& round = {},
                        const OperandRounding& softmax = {});

}  // namespace mantissa::kernels::reference
