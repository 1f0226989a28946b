#include "mantissa/setup/weights/model_of_file.h"

#include <fmt/format.h>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/json.h"
#include "mantissa/files/rwkv/checkpoint.h"
#include "mantissa/files/rwkv/generation.h"

namespace mantissa::weights {
namespace {

namespace fs = std::filesystem;

bool is_weight_file(const fs::path& path) {
  const fs::path end = path.extension();
  return (end == ".pth" || end == ".pt" || end == ".bin" || end == ".safetensors") && disk::is_file(path);
}

/// Returns the model of a file with the names of RWKV-LM, which has no config.json.
ModelSource model_of_rwkv(io::WeightFiles files, const fs::path& path, const fs::path& directory) {
  rwkv::Checkpoint checkpoint = rwkv::open_checkpoint(std::move(files), path);
  for (std::string& note : checkpoint.notes)
    checkpoint.config.notes.push_back(fmt::format("{}: {}", path.string(), note));
  ModelSource source{std::move(checkpoint.config), path, directory};
  source.tensors = std::move(checkpoint.weights);
  return source;
}

}  // namespace

ModelSource model_of_file(const fs::path& path) {
  if (!is_weight_file(path)) {
    throw FileError("{}: is neither a model directory, which needs config.json, nor a GGUF file",
                    path.string());
  }
  const fs::path directory = path.has_parent_path() ? path.parent_path() : ".";
  if (io::WeightFiles files(path); rwkv::has_rwkv_names(files.tensors()))
    return model_of_rwkv(std::move(files), path, directory);
  const fs::path config = directory / "config.json";
  if (disk::exists(config)) {
    return {model::parse_model_config(io::read_json_file(config), config.string()), path, directory};
  }
  throw FileError(
      "{}: expected a model, got a file of weights without a config.json beside it. Fix: put the model's "
      "config.json, and its tokenizer's files, into {}; mantissa inspect {} describes the weights alone",
      path.string(), directory.string(), path.string());
}

}  // namespace mantissa::weights
