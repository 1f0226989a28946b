// What a path means to the commands that look at weights: a file, a model directory, or the state of a run.
#pragma once

#include <filesystem>

namespace mantissa::convert {

struct Source {
  enum class Kind { file, model, state };
  Kind kind = Kind::file;
  std::filesystem::path path;     // the file, the model's directory, the state's folder
  std::filesystem::path weights;  // what io::WeightFiles opens
};

/// A file is itself and an index its model; a directory is a model or a state, or a run, which means its
/// model or else its newest state. Throws FileError where there is nothing.
Source find_source(const std::filesystem::path& path);

}  // namespace mantissa::convert
