// The model that a conversion reads: its config, its weights under Hugging Face names, and the files beside
// them.
#pragma once

#include "mantissa/engine/model/config.h"
#include "mantissa/files/gguf/write_tokenizer.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/model_path.h"

namespace mantissa::convert {

struct InputModel {
  model::ModelConfig config;
  io::WeightFiles files;
  gguf::ReadFile read;
  std::filesystem::path folder;  // of these files; of a GGUF file, itself
};

/// Opens a model directory, a GGUF file or a checkpoint of RWKV-LM, to be written in `format`.
/// Throws ConfigError for anything else.
InputModel model_of(const io::ModelPath& in, const char* format);

/// Returns true for a file that holds a model under the names of RWKV-LM.
bool is_rwkv_file(const io::ModelPath& in);

/// Returns the names of the files of the tokenizer and of generation that belong to the checkpoint `file`.
std::vector<std::string> files_beside(const std::filesystem::path& file);

}  // namespace mantissa::convert
