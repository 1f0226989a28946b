// The config.json that corresponds to the metadata of a GGUF file.
#pragma once

#include <string>
#include <vector>

#include "mantissa/engine/model/config.h"
#include "mantissa/files/gguf/architecture.h"
#include "mantissa/files/gguf/gguf_file.h"

namespace mantissa::gguf {

/// Returns the architecture of the file. Throws FileError with the supported ones if it is another.
const Architecture& architecture_of(const GgufFile& file);

struct ReadConfig {
  model::ModelConfig config;
  std::vector<std::string> ignored;  // tensors that are not weights: RoPE factors, a copy of the embedding
};

/// Throws FileError for metadata that is missing or has no counterpart in config.json, and ConfigError like
/// model::parse_model_config.
ReadConfig read_config(const GgufFile& file, const Architecture& architecture);

}  // namespace mantissa::gguf
