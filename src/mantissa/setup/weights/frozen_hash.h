// Hashes of the weights that a run reads from files and never writes, so that a resumed run finds the same.
#pragma once

#include <string>

#include "mantissa/engine/runtime/weights.h"

namespace mantissa::weights {

/// Returns the xxh64 of all blocks, with the names and formats of their slots, as 16 hexadecimal digits, or
/// "" if no slot is held in blocks.
std::string hash_of_quantized(const runtime::WeightSet& weights);

/// Returns the xxh64 of all weights that are not written and not held in blocks, in the formats in which the
/// set holds them and with their names, or "" if there are none. Weights that the set reads in the quantized
/// blocks of their file count as these blocks. Copies under scales do not count, because
/// their bytes change with the scales.
std::string hash_of_fixed(const runtime::WeightSet& weights);

}  // namespace mantissa::weights
