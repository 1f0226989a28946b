// How the factors of products are stored under scales: of the whole tensor, or of its blocks.
#pragma once

#include <optional>

#include "mantissa/plan/policy_uses.h"
#include "mantissa/plan/program.h"

namespace mantissa::plan {

/// How input i of a Linear op is stored under scales; null if the policy asks for a format without scales.
/// `element` becomes the format of the stored numbers.
std::optional<Quantization> quantization_of(const graph::Node& node, std::size_t i,
                                            const precision::Resolved& r, Scalar& element);

/// The index of the scale of the tensor in `from` as `element`, added to `program` at its first use; -1 if it
/// has none. All uses that scale the tensor alike share it.
std::int32_t scale_of(Program& program, const Buffer& from, const Quantization& q,
                      const precision::Resolved& r, Scalar element);

/// Throws ConfigError if the factors of a product are split in different numbers of parts.
void check_parts(const Step& step);

}  // namespace mantissa::plan
