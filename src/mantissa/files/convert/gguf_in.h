// A GGUF file rewritten as a Hugging Face directory.
#pragma once

#include <optional>
#include <stop_token>

#include "mantissa/files/convert/convert.h"
#include "mantissa/files/convert/origin.h"
#include "mantissa/files/gguf/foreign_model.h"

namespace mantissa::convert {

/// Opens the model of a GGUF file. Its metadata records the types that the weights were stored in, so that
/// dequantized weights do not pass for unrounded ones.
gguf::ForeignModel open_gguf(const std::filesystem::path& path);

/// Returns the dtype for config.json, to which transformers casts all weights: the one of the matrices if the
/// vectors, which GGUF files store as F32, lose nothing in it, or else F32.
io::Dtype dtype_of_model(const io::TensorSource& weights);

/// Writes the model to `request.out`, whose place has been checked. Returns null if `stop` was requested.
std::optional<Result> convert_gguf(const Request& request, const kernels::Context& ctx,
                                   const std::stop_token& stop);

}  // namespace mantissa::convert
