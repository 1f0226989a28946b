// The contents of a checkpoint: tensors, their ranges, their origin, and the loss of a cast to each narrower
// format. One value, printed as text for people and as JSON for programs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/files/convert/outliers.h"
#include "mantissa/files/convert/survey.h"
#include "mantissa/files/gguf/type_counts.h"
#include "mantissa/files/io/safetensors.h"
#include "mantissa/kernels/context.h"

namespace mantissa::convert {

/// The place of a tensor of PyTorch in its storage.
struct TensorPlace {
  std::string shares_with = {};            // the first tensor of the same storage; empty: it is the first
  bool same_elements = false;              // of the two, in the same order
  std::vector<std::int64_t> strides = {};  // in elements; empty if the tensor is row-major
};

struct InspectedTensor {
  io::TensorInfo tensor;
  std::optional<Survey> seen;  // of floating-point tensors with elements
  TensorPlace place = {};
  std::string stored = {};  // the type in a GGUF file ("Q4_1"); empty: the name of the dtype

  std::string_view type() const { return stored.empty() ? io::safetensors_name(tensor.dtype) : stored; }
};

struct Inspection {
  std::filesystem::path path;
  std::vector<InspectedTensor> tensors;
  Survey all;                     // of all tensors together
  std::vector<Outlier> outliers;  // the largest ratio first
  std::uint64_t values = 0, bytes = 0;
  std::vector<gguf::TypeCount> types;  // of a GGUF file
  std::string origin;
  std::vector<std::string> notes;  // on how the file was read
  std::map<std::string, std::string> metadata;
};

/// Reads every tensor of a safetensors, PyTorch or GGUF file, a model directory, or a run. Ranges and casts
/// of quantized tensors are those of the dequantized values. Throws FileError.
Inspection inspect(const std::filesystem::path& path, const kernels::Context& ctx);

std::string to_text(const Inspection& inspection);
std::string to_json(const Inspection& inspection);

}  // namespace mantissa::convert
