// The pickle of a state dict.
#pragma once

#include <span>
#include <string>

#include "mantissa/files/io/safetensors.h"

namespace mantissa::io::pth {

/// Returns a pickle of protocol 2: an OrderedDict of row-major `tensors`, each with a storage of its own,
/// whose key is its index. torch.load reads it with weights_only=True.
std::string pickle_of(std::span<const TensorToWrite> tensors);

}  // namespace mantissa::io::pth
