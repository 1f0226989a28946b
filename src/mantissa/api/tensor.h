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
  std::string dtype;  // "F32", "BF16", as safetensors calls them
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

/// The weights of a model, with the names, shapes and metadata of its safetensors files. The metadata keep
/// the magnitudes that the scales of 8-bit tensors are made from; they may be empty.
struct Weights {
  std::vector<Tensor> tensors;
  std::map<std::string, std::string> metadata;
};

}  // namespace mantissa::api
