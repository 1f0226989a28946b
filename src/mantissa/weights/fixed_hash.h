// The hash of the weights that a run reads from files and never writes.
#pragma once

#include <string>

#include "mantissa/runtime/weights.h"

namespace mantissa::weights {

/// Returns the xxh64 of all weights that are not written and not held in quantised blocks, in the formats in
/// which the set holds them and with their names, as 16 hexadecimal digits; "" if there are none. Copies
/// under scales do not count, because their bytes change with the scales.
std::string hash_of_fixed(const runtime::WeightSet& weights);

}  // namespace mantissa::weights
