// The generations of RWKV, by the names of their tensors.
#pragma once

#include <filesystem>
#include <vector>

#include "mantissa/files/io/dtype.h"

namespace mantissa::rwkv {

/// Returns true for the tensors of an RWKV model of any generation under RWKV-LM's names.
bool has_rwkv_names(const std::vector<io::TensorInfo>& tensors);

/// Throws FileError for tensors of another generation than RWKV-7 (x070), or with parts that RWKV-7 does not
/// have: the message names the generation, a tensor and what differs.
void check_generation(const std::vector<io::TensorInfo>& tensors, const std::filesystem::path& file);

}  // namespace mantissa::rwkv
