// Named tensors that can be read in pieces: a safetensors file, or a file of another layout that is read as
// if it were one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mantissa/core/tensor/layout.h"
#include "mantissa/files/io/dtype.h"

namespace mantissa::io {

/// A matrix in quantized blocks, row after row. `keep` keeps the bytes alive.
struct QuantizedTensor {
  QuantizedMatrix layout;
  std::span<const std::byte> bytes;
  std::shared_ptr<const void> keep = nullptr;
};

class TensorSource {
 public:
  virtual ~TensorSource() = default;

  virtual const std::vector<TensorInfo>& tensors() const = 0;
  virtual const std::map<std::string, std::string>& metadata() const = 0;
  virtual const std::filesystem::path& path() const = 0;
  /// Reads the bytes [offset, offset + out.size()) of `tensor`, one of tensors(), into `out`. Safe to call
  /// from several threads.
  virtual void read(const TensorInfo& tensor, std::span<std::byte> out, std::uint64_t offset) const = 0;

  /// Returns the tensor's bytes if they are in memory as read() returns them, else an empty span. They live
  /// as long as the source.
  virtual std::span<const std::byte> in_memory(const TensorInfo& /*tensor*/) const { return {}; }
  /// Takes the pages of a part of in_memory(), if they are of a mapped file, out of memory until the next
  /// access. Others stay.
  virtual void release(std::span<const std::byte> /*part*/) const {}
  /// Returns a tensor that is stored in quantized blocks as such, or null. read() returns its dequantized
  /// values.
  virtual std::optional<QuantizedTensor> quantized(const TensorInfo& /*tensor*/) const {
    return std::nullopt;
  }
  /// Returns the file that contains the tensor.
  virtual const std::filesystem::path& path_of(const TensorInfo& /*tensor*/) const { return path(); }
  /// Returns the names of the other tensors that are the same memory in the model that was saved.
  virtual std::vector<std::string> same_as(const TensorInfo& /*tensor*/) const { return {}; }
  /// The place of a tensor that is a view of a storage, which other tensors may share.
  struct View {
    std::uint64_t storage = 0, begin = 0;    // of the storage and of the first element, in bytes of the file
    std::vector<std::int64_t> strides = {};  // in elements; empty if the tensor is row-major
    friend bool operator==(const View&, const View&) = default;
  };
  /// Returns the tensor's place, or null for a file without storages.
  virtual std::optional<View> view_of(const TensorInfo& /*tensor*/) const { return std::nullopt; }
  /// Returns notes for the user on how the file was read.
  virtual std::vector<std::string> notes() const { return {}; }

 protected:
  TensorSource() = default;
  TensorSource(const TensorSource&) = default;
  TensorSource(TensorSource&&) = default;
  TensorSource& operator=(const TensorSource&) = default;
  TensorSource& operator=(TensorSource&&) = default;
};

}  // namespace mantissa::io
