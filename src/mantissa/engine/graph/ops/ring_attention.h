// Attention of rows whose tokens several ranks share: the blocks of keys and values arrive one after the
// other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/engine/graph/op.h"
#include "mantissa/kernels/attention.h"

namespace mantissa::graph {

/// Run attention and its gradient with the keys of all ranks of `c.ring`. For each of its blocks a rank
/// merges the results over blocks of keys in ascending order (kernels::Attention::merge). dQ is one sum over
/// them. dK and dV of a block are those of its own queries, plus those of each later block in ascending
/// order, in the arithmetic.
void ring_attention(const Call& c, kernels::Attention a);
void ring_attention_backward(const Call& c, kernels::AttentionBackward a);

/// Return the bytes of workspace beside those of the kernels, for `tokens` of a rank. `k` and `v` are
/// formats.
std::size_t ring_workspace(const kernels::AttentionShape& shape, std::int64_t tokens, Scalar arithmetic,
                           Scalar k, Scalar v);
std::size_t ring_backward_workspace(const kernels::AttentionShape& shape, std::int64_t tokens,
                                    Scalar arithmetic, Scalar k, Scalar v);

}  // namespace mantissa::graph
