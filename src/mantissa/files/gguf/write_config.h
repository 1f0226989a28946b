// The hyper-parameters of a model as metadata of a GGUF file.
#pragma once

#include <string>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/files/gguf/architecture.h"
#include "mantissa/files/gguf/header_writer.h"

namespace mantissa::gguf {

/// Returns the architecture for a model. Throws ConfigError if there is none, or if llama.cpp would compute
/// something else: dynamic RoPE, windows that its architecture does not have, other activations or scales of
/// scores.
const Architecture& writable_architecture(const model::ModelConfig& config);

/// Adds the keys of the architecture. Returns notes about numbers that f32 metadata rounds.
std::vector<std::string> write_config(const model::ModelConfig& config, const Architecture& architecture,
                                      HeaderWriter& header);

/// Returns the factors of llama3 scaling, which a GGUF file holds as the tensor "rope_freqs.weight"; empty
/// without that scaling.
std::vector<float> rope_factors(const model::ModelConfig& config);

}  // namespace mantissa::gguf
