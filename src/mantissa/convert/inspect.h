// The contents of a checkpoint: tensors, their ranges, their origin, and the loss of a cast to each narrower
// format. One value, printed as text for people and as JSON for programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/convert/outliers.h"
#include "mantissa/convert/survey.h"
#include "mantissa/io/safetensors.h"
#include "mantissa/kernels/context.h"

namespace mantissa::convert {

struct InspectedTensor {
  io::TensorInfo tensor;
  std::optional<Survey> seen;  // of floating-point tensors with elements
};

struct Inspection {
  std::filesystem::path path;
  std::vector<InspectedTensor> tensors;
  Survey all;                     // of all tensors together
  std::vector<Outlier> outliers;  // the largest ratio first
  std::uint64_t values = 0, bytes = 0;
  std::string origin;
  std::map<std::string, std::string> metadata;
};

/// Reads every tensor of a safetensors file, a model directory, or a run. Throws FileError.
Inspection inspect(const std::filesystem::path& path, const kernels::Context& ctx);

std::string to_text(const Inspection& inspection);
std::string to_json(const Inspection& inspection);

}  // namespace mantissa::convert
