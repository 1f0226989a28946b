// What a checkpoint holds.
#pragma once

#include <filesystem>
#include <string>

#include "mantissa/api/hardware.h"

namespace mantissa::api {

/// For people, and for programs (docs/cli.md, "inspect").
struct Inspection {
  std::string text, json;
};
/// Reads the tensors of a safetensors file, a model directory, or a run: shapes, dtypes, ranges, where they
/// come from, and what a cast to each narrower format would lose. Throws FileError.
Inspection inspect(const std::filesystem::path& path, const Hardware& hardware = {});

}  // namespace mantissa::api
