// The hash of a model's weights by their values, whatever kind of file they are in.
#pragma once

#include <string>

#include "mantissa/engine/runtime/device.h"
#include "mantissa/setup/weights/model_files.h"

namespace mantissa::weights {

/// Returns the xxh64 of the weights of `source` without those of an adapter, as 16 hexadecimal digits; "" for
/// a model without weights. Names are those of the model's parameters, and values are in f32, so the same
/// weights have one hash in a directory, a checkpoint of RWKV-LM and a GGUF file, and in each dtype that
/// holds them. Reads all weights once, on all threads; the result does not depend on their number.
std::string hash_of_weights(const ModelSource& source, const runtime::Device& device);

}  // namespace mantissa::weights
