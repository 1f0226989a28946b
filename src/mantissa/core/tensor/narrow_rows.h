// Weights that blocks cannot hold, because their rows do not divide into them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mantissa/core/numeric/quants.h"

namespace mantissa {

/// The weights that were chosen for blocks of a format and keep the policy's formats.
using NarrowRows = std::map<QuantFormat, std::vector<std::string>>;

/// Returns a note for each format. Layers that differ only in their number share a name:
/// "model.layers.*.mlp.down_proj".
std::vector<std::string> narrow_rows_notes(const NarrowRows& narrow);

}  // namespace mantissa
