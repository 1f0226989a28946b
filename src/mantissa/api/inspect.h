// What a checkpoint holds.
#pragma once

#include <filesystem>
#include <string>

#include "mantissa/api/hardware.h"

namespace mantissa::api {

struct Inspection {
  std::string text, json;
};
/// Tensors of a safetensors file, a model directory, or a run: shapes, dtypes, ranges, where they come from,
/// and what a cast to each narrower format would lose.
Inspection inspect(const std::filesystem::path& path, const Hardware& hardware = {});

}  // namespace mantissa::api
