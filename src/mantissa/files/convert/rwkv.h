// Checkpoints of RWKV-LM rewritten as Hugging Face directories, and back.
#pragma once

#include <optional>
#include <stop_token>

#include "mantissa/files/convert/convert.h"

namespace mantissa::convert {

/// Writes the model of a checkpoint of RWKV-LM, `request.in`, to the directory `request.out`, with the files
/// of the tokenizer beside it. Returns null if `stop` was requested.
std::optional<Result> convert_rwkv(const Request& request, const kernels::Context& ctx,
                                   const std::stop_token& stop);

/// Returns true if `request` writes an RWKV-7 model as one file of PyTorch: the names are those of RWKV-LM.
bool becomes_rwkv_file(const Request& request);

/// Writes that file.
std::optional<Result> write_rwkv(const Request& request, const kernels::Context& ctx,
                                 const std::stop_token& stop);

/// Throws ConfigError if the dtype of `request` is one that no reader of RWKV-LM's checkpoints accepts.
/// `request` writes such a file.
void check_rwkv_dtype(const Request& request);

/// Returns true if `request` writes an adapter of initial states as one file of PyTorch, that of RWKV-PEFT.
bool becomes_states_file(const Request& request);

/// Writes that file.
std::optional<Result> write_states(const Request& request, const kernels::Context& ctx,
                                   const std::stop_token& stop);

}  // namespace mantissa::convert
