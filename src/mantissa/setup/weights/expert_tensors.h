// The weights of experts: one parameter for all experts of a layer in the program, and one tensor for each
// expert in files (engine/model/experts.h).
#pragma once

#include <vector>

#include "mantissa/files/io/checkpoint.h"

namespace mantissa::weights {

/// Returns the files' tensors with those of the experts of a layer joined to one, [experts, out, in]. Throws
/// FileError if that of an expert is missing, and ShapeError if they differ in shape or format.
io::WeightFiles with_joined_experts(io::WeightFiles files);

/// Replaces each tensor of all experts by one for each expert.
std::vector<io::TensorToWrite> with_split_experts(std::vector<io::TensorToWrite> tensors);

}  // namespace mantissa::weights
