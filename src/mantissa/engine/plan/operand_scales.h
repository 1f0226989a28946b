// Scales of the factors of products: one for the tensor, or one for each block.
#pragma once

#include <optional>

#include "mantissa/engine/plan/policy_uses.h"
#include "mantissa/engine/plan/program.h"

namespace mantissa::plan {

/// Returns how input i of a Linear op is stored with scales, a weight or an activation. Returns null for
/// other ops, and if the compute format has no scales. Sets `element` to the type of the buffer that stores
/// the elements. Throws ConfigError if scales cannot be shared as the policy wants.
std::optional<ScaledStorage> scaled_storage_of(const graph::Node& node, std::size_t i, bool weight,
                                               const precision::Resolved& r, Scalar& element);

/// Returns true if `node` is a weight gradient whose factors are transformed before they are rounded to
/// blocks. Throws ConfigError if only one of them would be.
bool transforms_factors(const graph::Node& node, PolicyUses& uses);

/// Returns the index of the scale for `from` stored as `element`, or -1 if no tensor scale is needed. Adds
/// the scale to `program` at its first use. All uses with the same settings share it.
std::int32_t scale_of(Program& program, const Buffer& from, const ScaledStorage& q,
                      const precision::Resolved& r, Scalar element);

/// Throws ConfigError if the factors of a product have different numbers of parts.
void check_parts(const Step& step);

}  // namespace mantissa::plan
