// The format that holds the frozen weights of a model: Model::base, or what its adapter was trained on.
#pragma once

#include <string>
#include <vector>

#include "mantissa/app/api/model.h"

namespace mantissa::api {

/// Returns notes on weights that the format cannot hold, which keep the policy's formats. Throws FileError or
/// ConfigError as the functions that use the model do.
std::vector<std::string> base_notes(const Model& model);

}  // namespace mantissa::api
