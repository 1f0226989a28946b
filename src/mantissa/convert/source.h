// Resolves a path for commands that read weights: a file, a model directory, or the state of a run.
#pragma once

#include <filesystem>

namespace mantissa::convert {

struct Source {
  enum class Kind { file, model, state, gguf };
  Kind kind = Kind::file;
  std::filesystem::path path;     // the file, the model's directory, the state's folder
  std::filesystem::path weights;  // the path for io::WeightFiles, or of the GGUF file
};

/// Resolves `path`. A safetensors, PyTorch or GGUF file stands for itself and an index for its model. A
/// directory is a model, a state, or a run; a run stands for its model or else for its newest state. Throws
/// FileError if nothing is found.
Source find_source(const std::filesystem::path& path);

/// Throws FileError if `source`, found for the path `given`, is an adapter, or a run or state of one. These
/// have no weights of their own.
void refuse_adapter(const Source& source, const std::filesystem::path& given);

}  // namespace mantissa::convert
