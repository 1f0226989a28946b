// Tensors in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace mantissa::api {

/// A tensor in memory: row-major, little-endian.
struct Tensor {
  std::string name;
  std::string dtype;  // "F32", "BF16", as safetensors calls them
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

}  // namespace mantissa::api
