// The weights of experts in files. A program holds a weight of all experts of a layer in one parameter,
// [experts, out, in]: "….experts.up_proj.weight", and so do states. The files of transformers hold a tensor
// [out, in] for each expert: "….experts.0.up_proj.weight".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/files/io/checkpoint.h"

namespace mantissa::io {

/// Returns true for a parameter that files hold in a tensor for each expert.
bool is_of_experts(std::string_view parameter);
/// Returns the name of an expert's tensor.
std::string expert_tensor(std::string_view parameter, std::int64_t expert);

struct ExpertTensor {
  std::string parameter;
  std::int64_t expert = 0;
};
/// Returns the parameter to which the tensor of an expert belongs, and the expert. Null for any other tensor.
std::optional<ExpertTensor> parse_expert_tensor(std::string_view tensor);

/// Returns the tensors of the experts that `tensor` holds, at their places in it, or `tensor` if it holds
/// none.
std::vector<TensorInfo> split_experts(const TensorInfo& tensor);

/// Returns the files' tensors with those of the experts of a layer joined to one, [experts, out, in]. Throws
/// FileError if that of an expert is missing, and ShapeError if they differ in shape or format.
WeightFiles with_joined_experts(WeightFiles files);

/// Replaces each tensor of all experts by one for each expert.
std::vector<TensorToWrite> with_split_experts(std::vector<TensorToWrite> tensors);

}  // namespace mantissa::io
