// A model: a directory, or a config and weights in memory.
#pragma once

#include <concepts>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/app/api/tensor.h"

namespace mantissa::api {

struct Model {
  Model() = default;
  /// The path of a Hugging Face directory, a GGUF file, an adapter whose base is on this machine, a state, or
  /// a run, which stands for its model or adapter or, without these, for its newest state.
  template <std::convertible_to<std::filesystem::path> Path>
  Model(Path&& path) : directory(std::forward<Path>(path)) {}  // NOLINT: a path is a model
  /// A model in memory. `config_json` is the text of its config.json. The only tokenizer is the byte
  /// tokenizer, for a model with 256 entries.
  Model(std::string config_json_, std::shared_ptr<const Weights> weights_)
      : config_json(std::move(config_json_)), weights(std::move(weights_)) {}

  /// The same with the adapter in `adapter_`: a directory of peft, or a run with an adapter. Empty: none.
  Model(std::filesystem::path path, std::filesystem::path adapter_, std::string base_ = {})
      : directory(std::move(path)), adapter(std::move(adapter_)), base(std::move(base_)) {}

  std::filesystem::path directory;
  std::string config_json;
  std::shared_ptr<const Weights> weights;  // used in place, and shared while in use
  std::filesystem::path adapter;           // added to the model; empty: none
  /// The format that holds the frozen weights: int8, nf4 or nf4-double for those of linear layers; f32, bf16
  /// or f16 for all; or params, the policy's formats. Empty: the one that the adapter was trained on.
  std::string base = {};
};

/// Returns warnings on the files of a model: the base of its adapter is not the one with which the adapter's
/// run began. Reads the base once. Throws FileError or ConfigError as the functions that use the model do.
std::vector<std::string> warnings_of(const Model& model);

}  // namespace mantissa::api
