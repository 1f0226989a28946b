// The layout of a checkpoint of PyTorch that is written: a zip archive whose contents are not compressed.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "mantissa/files/io/safetensors.h"

namespace mantissa::io::pth {

/// The CRC-32 of some bytes, and how to append others.
struct Crc {
  std::uint32_t value = 0;
  std::uint64_t bytes = 0;

  static Crc of(std::span<const std::byte> bytes);
  /// Appends the bytes of `next`.
  void append(const Crc& next);
};

/// Places the values of tensors in the file, each at a multiple of 64 bytes. The same tensors always give the
/// same bytes.
class TorchLayout {
 public:
  /// `metadata` is written as the entry mantissa.json, which PyTorch ignores. Throws like build_header.
  TorchLayout(std::span<const TensorToWrite> tensors, const std::map<std::string, std::string>& metadata);

  /// Returns the number of bytes of the file.
  std::uint64_t bytes() const { return bytes_; }
  /// Returns where the values of a tensor begin in the file.
  std::uint64_t begin(std::size_t tensor) const { return entries_[first_tensor_ + tensor].begin; }

  /// Writes everything but the values, by calls of write(offset, bytes). `crcs` are those of the tensors'
  /// values.
  void write_around(std::span<const Crc> crcs,
                    const std::function<void(std::uint64_t, std::span<const std::byte>)>& write) const;

 private:
  struct Entry {
    std::string name, contents;  // contents: empty for a tensor
    std::uint64_t local = 0, begin = 0, size = 0;
    std::uint32_t crc = 0;
  };
  void add(const std::string& name, std::string contents, std::uint64_t size);

  std::vector<Entry> entries_;
  std::size_t first_tensor_ = 0;
  std::uint64_t directory_ = 0, bytes_ = 0;
};

}  // namespace mantissa::io::pth
