// safetensors files: an 8-byte header length, a JSON header, and the tensors' bytes.
// https://github.com/huggingface/safetensors
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/io/mapping.h"
#include "mantissa/numeric/format.h"

namespace mantissa::io {

/// Element types of a file ("F64" "F32" "BF16" "F16" "F8_E4M3" "F8_E5M2" "I64" "I32" "I16" "I8" "U8" "BOOL"
/// "U64" "U32" "U16" "C64" "F8_E8M0" "F8_E4M3FNUZ" "F8_E5M2FNUZ"). Only the first six are number formats of
/// this library; values of the others are copied unchanged.
enum class Dtype : std::uint8_t {
  f64,
  f32,
  bf16,
  f16,
  e4m3,
  e5m2,
  i64,
  i32,
  i16,
  i8,
  u8,
  boolean,
  u64,
  u32,
  u16,
  c64,
  e8m0,
  e4m3fnuz,
  e5m2fnuz
};
std::string_view safetensors_name(Dtype dtype);
/// Returns the dtype with the name `name` in a file, or null.
std::optional<Dtype> parse_dtype(std::string_view name);
/// Returns PyTorch's name, which config.json uses: "bfloat16".
std::string_view torch_name(Dtype dtype);
std::size_t bytes_of(Dtype dtype);
/// Returns the number format of a dtype's values, or null if this library has none.
std::optional<Scalar> scalar_of(Dtype dtype);
/// Returns the dtype that stores values of `s`; f32 for tf32, which safetensors has no name for.
Dtype dtype_of(Scalar s);

struct TensorInfo {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // byte range in the data section
  std::int64_t count() const;
};

/// A safetensors file. Opening checks it completely: header length, JSON depth, ranges, overlaps, duplicates,
/// shapes × dtype = bytes. Each error is one FileError with the file, the tensor and the fix.
class SafetensorsReader {
 public:
  explicit SafetensorsReader(const std::filesystem::path& path);
  ~SafetensorsReader();
  SafetensorsReader(SafetensorsReader&&) noexcept;
  SafetensorsReader& operator=(SafetensorsReader&&) noexcept;

  const std::vector<TensorInfo>& tensors() const;
  const std::map<std::string, std::string>& metadata() const;
  /// Returns the tensor `name`, or nullptr.
  const TensorInfo* find(std::string_view name) const;
  /// Reads the tensor's bytes [offset, offset + out.size()) into `out`.
  void read(const TensorInfo& tensor, std::span<std::byte> out, std::uint64_t offset = 0) const;
  const std::filesystem::path& path() const;
  /// Returns the tensor's bytes in `mapping`, the result of map() of this file.
  std::span<const std::byte> view(const TensorInfo& tensor, const Mapping& mapping) const;
  /// Maps the file that was opened, even if another file now has its path.
  std::shared_ptr<const Mapping> map() const;

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
  std::span<const std::byte> bytes;
  std::function<void(std::uint64_t offset, std::span<std::byte> out)> fill;  // used if `bytes` is empty
};

/// Writes the file atomically (temporary file, fsync, rename). Throws ResourceError if the disk is full and
/// then leaves the old file unchanged. Returns the xxh64 of the data section.
std::uint64_t write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                                const std::map<std::string, std::string>& metadata = {});

}  // namespace mantissa::io
