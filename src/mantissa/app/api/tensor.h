// Tensors in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace mantissa::api {

/// A tensor in memory: row-major, little-endian.
struct Tensor {
  std::string name;
  std::string dtype;  // "F32", "BF16", as in safetensors
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

/// The weights of a model, with the names, shapes and metadata of its safetensors files. The metadata
/// contains the magnitudes from which the scales of 8-bit tensors are computed; it may be empty.
struct Weights {
  std::vector<Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

}  // namespace mantissa::api
