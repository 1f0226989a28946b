// The roundings of a tree of sums over shards: of one shard's gradient, and of the sum of two neighbours, in
// the policy's `reduce` format.
#pragma once

#include <cstdint>

#include "mantissa/core/numeric/philox.h"
#include "mantissa/core/numeric/value_counts.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/engine/comm/shard_tree.h"
#include "mantissa/kernels/context.h"

namespace mantissa::comm {

/// How one node of the tree rounds some elements of one parameter.
struct NodeRounding {
  Scalar format = Scalar::f32;
  Rounding rounding = Rounding::nearest;
  RandomStream stream;      // of stochastic rounding
  std::uint64_t first = 0;  // index of the first element in the whole parameter, whichever rank rounds it
};

/// Returns the random bits of a node of the tree for a parameter: those of the run's seed, the attempted
/// step, and, in place of a name's hash, that of `name_hash` (hash_name() of the parameter) and the node's
/// shards.
RandomStream random_bits(std::uint64_t seed, std::int64_t step, std::uint64_t name_hash, ShardRange node);

/// Computes to = from, rounded by `node`.
void round_into(const kernels::Context& ctx, std::int64_t count, Matrix from, Matrix to,
                const NodeRounding& node);

/// Computes to = older + newer in f32 (f64 if the format is f64), rounded by `sum`. `own` rounds `newer`
/// before; null: it is rounded. `to` may be one of them.
void add_into(const kernels::Context& ctx, std::int64_t count, Matrix older, Matrix newer, Matrix to,
              const NodeRounding* own, const NodeRounding& sum);

/// Adds to `counts` what round_into does (`older` is null), or the rounding of the sum in add_into: the
/// values after it, and their errors. That of `newer` is not counted.
void count_rounding(std::int64_t count, const Matrix* older, Matrix newer, const NodeRounding* own,
                    const NodeRounding& node, ValueCounts& counts);

}  // namespace mantissa::comm
