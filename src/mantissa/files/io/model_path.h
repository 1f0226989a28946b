// What the path to a model names, for every command that takes one.
#pragma once

#include <filesystem>

namespace mantissa::io {

/// The settings of an adapter in PEFT's layout, and the folder of a run that holds its adapter.
inline constexpr const char* kAdapterConfig = "adapter_config.json";
inline constexpr const char* kAdapterFolder = "adapter";

/// A file that a run leaves in its directory while the model or adapter there is that of an earlier run,
/// which
/// --overwrite replaces. The directory then stands for neither.
inline constexpr const char* kEarlierMark = ".mantissa-earlier";

/// A path to a model, or to weights.
struct ModelPath {
  enum class Kind {
    model,    // a directory in Hugging Face's layout; it may lack config.json, or weights
    file,     // one file of weights: safetensors, or a checkpoint of PyTorch
    gguf,     // a GGUF file
    state,    // a state of a run
    adapter,  // a directory in PEFT's layout
  };
  Kind kind = Kind::file;
  std::filesystem::path path;     // the directory, or the file
  std::filesystem::path weights;  // for io::WeightFiles, or the GGUF file; of an adapter, its directory
};

/// Returns what `path` names. A run stands for its model, its adapter or else its newest state, the index or
/// config.json of a model for its directory, and another directory for its only .pth file. Throws FileError
/// for what cannot be read or is none of these, for several .pth files, and for a run with kEarlierMark.
ModelPath open_model(const std::filesystem::path& path);

/// Returns the directory in PEFT's layout that `path` names: itself or, of a run, its adapter; "" if there is
/// none. Throws FileError for what cannot be read.
std::filesystem::path adapter_folder(const std::filesystem::path& path);

/// Returns true for a file that begins as GGUF files do, or has their suffix.
bool is_gguf(const std::filesystem::path& path);

}  // namespace mantissa::io
