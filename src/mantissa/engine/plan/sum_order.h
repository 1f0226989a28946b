// The order in which the products of a step are summed (core/numeric/factor.h; docs/numerics.md, "The order
// of every sum").
#pragma once

#include <string_view>

#include "mantissa/engine/plan/program.h"

namespace mantissa::plan {

/// "chain", "tile", "card".
std::string_view name(SumOrder order);

/// Returns true if `step` multiplies and sums: a product, the head or attention.
bool sums_products(const Step& step);

/// Sets the order of the sums of `step`, if it has any. With a card it is the card's, and ConfigError is
/// thrown unless the card multiplies the step's factors. Else it is `wanted`, or by the factors: tile if all
/// of them, or all of their parts, are exact in bf16, in f32 arithmetic; otherwise chain. Sums that round
/// below f32 are in chain order if a factor has a tensor scale: a tile's sum is that of the unscaled values,
/// which exceed f16.
///
/// `use` is that of the step in the program's policy. Throws ConfigError if the step does not support the
/// order `wanted`, or if its partial sums round after a number of terms that is not a multiple of a tile's
/// block.
void set_sum_order(const Program& program, const precision::Use& use, precision::AccumulateOrder wanted,
                   Step& step);

}  // namespace mantissa::plan
