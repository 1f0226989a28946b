// safetensors files: an 8-byte header length, a JSON header, and the tensors' bytes.
// https://github.com/huggingface/safetensors
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/mapping.h"
#include "mantissa/files/io/dtype.h"
#include "mantissa/files/io/tensor_source.h"

namespace mantissa::io {

/// A safetensors file. Opening checks it completely: header length, JSON depth, ranges, overlaps, duplicates,
/// shapes × dtype = bytes. Each error is one FileError with the file, the tensor and the fix.
class SafetensorsReader final : public TensorSource {
 public:
  explicit SafetensorsReader(const std::filesystem::path& path);
  ~SafetensorsReader() override;
  SafetensorsReader(SafetensorsReader&&) noexcept;
  SafetensorsReader& operator=(SafetensorsReader&&) noexcept;

  const std::vector<TensorInfo>& tensors() const override;
  const std::map<std::string, std::string>& metadata() const override;
  /// Returns the tensor `name`, or nullptr.
  const TensorInfo* find(std::string_view name) const;
  /// Reads the tensor's bytes [offset, offset + out.size()) into `out`.
  void read(const TensorInfo& tensor, std::span<std::byte> out, std::uint64_t offset = 0) const override;
  const std::filesystem::path& path() const override;
  /// Returns the tensor's bytes in `mapping`, the result of map() of this file.
  std::span<const std::byte> view(const TensorInfo& tensor, const disk::Mapping& mapping) const;
  /// Maps the file that was opened, even if another file now has its path.
  std::shared_ptr<const disk::Mapping> map() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A tensor to write. `bytes` is borrowed until write_safetensors returns. Alternatively `fill` streams the
/// contents: it is called with ascending offsets and a buffer to fill, so no second copy is needed.
struct TensorToWrite {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes = {};
  std::function<void(std::uint64_t offset, std::span<std::byte> out)> fill = {};  // used if `bytes` is empty
};

/// Writes the file atomically (temporary file, fsync, rename). Throws ResourceError if the disk is full and
/// then leaves the old file unchanged. Returns the xxh64 of the data section.
std::uint64_t write_safetensors(const disk::Target& target, std::span<const TensorToWrite> tensors,
                                const std::map<std::string, std::string>& metadata = {});

}  // namespace mantissa::io
