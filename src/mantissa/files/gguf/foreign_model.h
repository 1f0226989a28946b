// A GGUF file as a Hugging Face model.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/files/gguf/model_weights.h"

namespace mantissa::gguf {

struct ForeignModel {
  model::ModelConfig config;
  std::shared_ptr<const ModelWeights> weights;
  std::vector<std::pair<std::string, std::string>> files;  // of the tokenizer and of generation
  std::vector<std::string> notes;                          // for the user
};

/// Reads the metadata of `file` and checks its tensors. `metadata` becomes that of the weights. Throws
/// FileError or ConfigError if the file is incomplete or not supported.
ForeignModel open_model(std::shared_ptr<const GgufFile> file, std::map<std::string, std::string> metadata);

}  // namespace mantissa::gguf
