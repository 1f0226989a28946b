// A LoRA adapter written as a GGUF file, which llama.cpp adds to its base when it loads both.
#pragma once

#include <optional>
#include <stop_token>

#include "mantissa/files/convert/convert.h"

namespace mantissa::convert {

/// Returns true if `request` writes an adapter of linear layers as a GGUF file.
bool becomes_gguf_adapter(const Request& request);

/// Writes that file, whose place has been checked: the matrices A [rank, in] and B [out, rank] of each layer
/// as "NAME.lora_a" and "NAME.lora_b", in F32 or the format of `request.change`. The architecture and the
/// order of rows are those of the base that adapter_config.json names, which must be here. Returns null if
/// `stop` was requested. Throws ConfigError for what llama.cpp does not add: DoRA, adapters of experts and
/// heads, layers that one alpha cannot scale.
std::optional<Result> write_gguf_adapter(const Request& request, const kernels::Context& ctx,
                                         const std::stop_token& stop);

}  // namespace mantissa::convert
