// A model written as a GGUF file.
#pragma once

#include <optional>
#include <stop_token>

#include "mantissa/files/convert/convert.h"

namespace mantissa::convert {

/// Writes the model of `request.in`, a model directory or a GGUF file, to the file `request.out`, whose place
/// has been checked. Matrices have the format of `request.change`, or the type `request.quantized`, or their
/// own; vectors and learned positions are F32, and so are matrices whose rows do not divide into blocks.
/// Returns null if `stop` was requested. Throws ConfigError if GGUF or llama.cpp's architecture cannot
/// express the model, and FileError if a block exceeds the range of its type.
std::optional<Result> write_gguf(const Request& request, const kernels::Context& ctx,
                                 const std::stop_token& stop);

}  // namespace mantissa::convert
