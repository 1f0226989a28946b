// Description of a checkpoint.
#pragma once

#include <filesystem>
#include <string>

#include "mantissa/app/api/hardware.h"

namespace mantissa::api {

/// A description as text and as JSON (docs/cli/inspect.md).
struct Inspection {
  std::string text, json;
};
/// Describes the tensors of a safetensors file, a model directory, a state, or a run: shapes, dtypes, ranges,
/// origin, outliers, and the loss of a cast to each format. Throws FileError.
Inspection inspect(const std::filesystem::path& path, const Hardware& hardware = {});

}  // namespace mantissa::api
