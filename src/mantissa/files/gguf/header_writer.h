// Writes the header of a GGUF file, version 3.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/files/gguf/tensor_type.h"

namespace mantissa::gguf {

/// A tensor to write. `begin` is set by HeaderWriter::finish.
struct TensorToStore {
  std::string name;
  TensorType type = TensorType::f32;
  std::vector<std::int64_t> shape;  // rows first
  std::uint64_t begin = 0;          // offset in the file

  std::uint64_t count() const;
  std::uint64_t bytes() const { return count() / traits(type).block * traits(type).bytes; }
};

/// Collects metadata in the order of the calls. Each key may occur once.
class HeaderWriter {
 public:
  void add(std::string_view key, std::uint32_t value);
  void add(std::string_view key, float value);
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, const std::vector<std::string>& values);
  void add(std::string_view key, const std::vector<std::int32_t>& values);
  void add(std::string_view key, const std::vector<float>& values);
  void add_flag(std::string_view key, bool value);

  /// Returns the header, padded to the alignment, and sets the offsets of the tensors, which follow it in
  /// their order.
  std::string finish(std::span<TensorToStore> tensors) const;

 private:
  void begin(std::string_view key, std::uint32_t type);

  std::string entries_;
  std::uint64_t count_ = 0;
};

}  // namespace mantissa::gguf
