// Named tensors in memory, read like the tensors of a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "mantissa/files/io/safetensors.h"

namespace mantissa::io {

struct MemoryTensor {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;  // row-major, little-endian
};

struct MemoryTensors {
  std::vector<MemoryTensor> tensors;
  std::map<std::string, std::string> metadata;  // as in a file
  std::shared_ptr<const void> keep;             // keeps the bytes alive
};

/// The path of tensors in memory, for messages.
inline constexpr const char* kInMemory = "weights in memory";

}  // namespace mantissa::io
