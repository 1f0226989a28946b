// Writes adapters in PEFT's layout, which peft loads with PeftModel.from_pretrained.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/engine/model/adapter.h"
#include "mantissa/engine/model/config.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::peft {

/// An adapter to write. Its data is borrowed until write_adapter returns.
struct AdapterToWrite {
  const model::ModelConfig& config;            // of the base, with the adapter
  std::string base;                            // base_model_name_or_path
  std::span<const io::TensorToWrite> tensors;  // named as the parameters of the graph
  std::map<std::string, std::string> metadata = {};
  // additional files, such as a tokenizer's: name and contents
  std::span<const std::pair<std::string, std::string>> files = {};
};

/// Writes `directory` atomically: adapter_config.json, adapter_model.safetensors and the files. Returns the
/// xxh64 of the tensors' bytes. Throws ResourceError if the disk is full.
std::uint64_t write_adapter(const std::filesystem::path& directory, const AdapterToWrite& adapter);

/// Returns the text of adapter_config.json for the adapter of `config`.
std::string config_text(const model::ModelConfig& config, const std::string& base);

/// Returns names that select exactly the layers `wanted` among `all` in peft, where a name selects the
/// modules that it equals or ends: last parts of scopes, or longer ends where layers that are not wanted
/// share those.
std::vector<std::string> target_modules(std::span<const std::string> wanted,
                                        std::span<const model::LinearLayer> all);

}  // namespace mantissa::peft
