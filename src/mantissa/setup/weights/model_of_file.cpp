#include "mantissa/setup/weights/model_of_file.h"

#include <algorithm>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/files/io/checkpoint.h"
#include "mantissa/files/io/json.h"

namespace mantissa::weights {
namespace {

namespace fs = std::filesystem;

bool is_weight_file(const fs::path& path) {
  const fs::path end = path.extension();
  return (end == ".pth" || end == ".pt" || end == ".bin" || end == ".safetensors") && disk::is_file(path);
}

/// Returns true for the weights of an RWKV model, which are released without a config.json.
bool is_rwkv(const io::WeightFiles& files) {
  const auto is_state_mixing = [](const io::TensorInfo& t) {
    return t.name.starts_with("blocks.0.att.time_") || t.name == "blocks.0.att.receptance.weight";
  };
  return files.find("emb.weight") != nullptr && std::ranges::any_of(files.tensors(), is_state_mixing);
}

}  // namespace

ModelSource model_of_file(const fs::path& path) {
  if (!is_weight_file(path)) {
    throw FileError("{}: is neither a model directory, which needs config.json, nor a GGUF file",
                    path.string());
  }
  const fs::path directory = path.has_parent_path() ? path.parent_path() : ".";
  const fs::path config = directory / "config.json";
  if (disk::exists(config)) {
    return {model::parse_model_config(io::read_json_file(config), config.string()), path, directory};
  }
  if (is_rwkv(io::WeightFiles(path))) {
    throw FileError(
        "{}: expected a model of a supported family (docs/models.md), got the weights of an RWKV "
        "model, which this version cannot run. Fix: mantissa inspect {} describes them; convert "
        "and diff read them too",
        path.string(), path.string());
  }
  throw FileError(
      "{}: expected a model, got a file of weights without a config.json beside it. Fix: put the model's "
      "config.json, and its tokenizer's files, into {}; mantissa inspect {} describes the weights alone",
      path.string(), directory.string(), path.string());
}

}  // namespace mantissa::weights
