// The common part of the Qwen families: the layers with a window.
#pragma once

#include <vector>

#include "mantissa/engine/model/decoder.h"
#include "mantissa/engine/model/fields.h"

namespace mantissa::model {

/// Sets the windows by use_sliding_window, sliding_window, and layer_types or max_window_layers.
void read_qwen_windows(const FieldReader& fields, DecoderSpec& spec);

/// Returns the decoder's fields, those of the windows, and `more`.
std::vector<Field> qwen_fields(std::vector<Field> more);

}  // namespace mantissa::model
