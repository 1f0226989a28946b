// A model named by one file of weights.
#pragma once

#include <filesystem>

#include "mantissa/setup/weights/model_files.h"

namespace mantissa::weights {

/// Returns the model whose weights are the file `path` (safetensors or a checkpoint of PyTorch) and whose
/// config.json and tokenizer are beside it. A checkpoint of RWKV-LM (files/rwkv) needs no config.json. Throws
/// FileError, with what is missing, for any other file.
ModelSource model_of_file(const std::filesystem::path& path);

}  // namespace mantissa::weights
