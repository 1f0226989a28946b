// Random Hadamard transforms along tokens, which spread outliers before a weight gradient's factors are
// rounded. The transform is orthogonal, so a product of two transformed factors is that of the factors.
//
// Source: Transformer Engine, NVFP4 recipe (arXiv:2509.25149, section 4.2).
#pragma once

#include <cstdint>
#include <span>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {

/// Tokens of one transform.
inline constexpr std::int64_t kHadamard = 16;

/// Returns the signs of a run's transforms: bit i is set if token i of 16 is negated first.
std::uint16_t hadamard_signs(std::uint64_t seed);

/// to = from, where every 16 consecutive tokens of `rows` (empty: of the matrix) are multiplied by
/// H · diag(±1) / 4. H is Sylvester's matrix. `from` is [tokens, width], dense. Tokens after the last 16 of a
/// row stay as they are. Sums are in f32, in a tree that adds neighbours first; results round to `rounded`.
/// They are multiplied by `factor` and stored in to.type.
void hadamard(const Context& ctx, std::int64_t tokens, std::int64_t width, ConstMatrix from, Matrix to,
              std::uint16_t signs, Scalar rounded, std::span<const Row> rows = {}, float factor = 1);

}  // namespace mantissa::kernels
