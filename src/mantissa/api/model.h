// A model: a directory, or a config and weights in memory.
#pragma once

#include <concepts>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "mantissa/api/tensor.h"

namespace mantissa::api {

struct Model {
  Model() = default;
  /// A Hugging Face directory; a run, which means its model, else its newest state; or a state.
  template <std::convertible_to<std::filesystem::path> Path>
  Model(Path&& path) : directory(std::forward<Path>(path)) {}  // NOLINT: a path is a model
  /// `config_json`: the text of the model's config.json. There is no tokenizer but that of bytes, of a model
  /// with 256 entries.
  Model(std::string config_json_, std::shared_ptr<const Weights> weights_)
      : config_json(std::move(config_json_)), weights(std::move(weights_)) {}

  std::filesystem::path directory;
  std::string config_json;
  std::shared_ptr<const Weights> weights;  // read where they lie, and kept as long as they are used
};

}  // namespace mantissa::api
