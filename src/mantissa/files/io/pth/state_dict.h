// The tensors of a pickle under the names of a state dict.
#pragma once

#include <string>
#include <vector>

#include "mantissa/files/io/pth/pickle.h"

namespace mantissa::io::pth {

struct NamedTensor {
  std::string name;
  const PickledTensor* tensor = nullptr;
};

struct StateDict {
  std::vector<NamedTensor> tensors;  // in the order of the dict
  std::vector<std::string> notes;    // for the user: what was dropped
};

/// Finds the tensors of `pickle`. Names in nested dicts and lists are joined by dots. If a checkpoint of a
/// training run holds the weights under "model", "state_dict" or the like, only they are returned, without
/// that key; and "module.", which torch.nn.parallel puts before every name, is dropped. Values without
/// tensors are skipped. Throws FileError if there are no tensors, if a name occurs twice or is not UTF-8, or
/// if dicts nest too deeply.
StateDict state_dict_of(const Pickle& pickle, const std::string& where);

}  // namespace mantissa::io::pth
