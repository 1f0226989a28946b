// Reference attention and its gradient by their formulas, in double, one query at a time, for comparison with
// the kernels.
#pragma once

#include <functional>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/kernels/attention.h"

namespace mantissa::kernels::reference {

/// Rounds a number: a matmul operand (P, and dS in the backward pass), or a number inside the softmax. Empty:
/// no rounding.
using OperandRounding = std::function<double(double)>;

/// q, out: [tokens, heads · head_dim]; k, v: [tokens, kv_heads · head_dim] or [slots, capacity, kv_heads ·
/// head_dim]; lse: [tokens, heads]; dense rows. With `round`, p = exp(s − running maximum of its key block)
/// rounds before P·V, and the denominator is the sum of the unrounded values. With `softmax`, the scores
/// (after the soft cap), p, and the denominator, now the sum of the rounded p, round.
void attention(const Extent& extent, const AttentionShape& shape, const double* q, const double* k,
               const double* v, double* out, double* lse, const KeyCache& cache = {},
               const OperandRounding& round = {}, const OperandRounding& softmax = {});

/// Computes dq, dk, dv from dout, with the `out` and `lse` of the forward pass. Shapes as above, without a
/// cache. With `softmax` the scores, P and dS round.
void attention_backward(const Extent& extent, const AttentionShape& shape, const double* q, const double* k,
                        const double* v, const double* out, const double* lse, const double* dout, double* dq,
                        double* dk, double* dv, const OperandRounding& round = {},
                        const OperandRounding& softmax = {});

}  // namespace mantissa::kernels::reference
