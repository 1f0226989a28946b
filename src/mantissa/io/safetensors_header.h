// The JSON header of a safetensors file: parsed with every check, and written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/io/safetensors.h"

namespace mantissa::io {

/// The largest header that is read or written; the format's own limit.
inline constexpr std::uint64_t kLargestHeader = 100'000'000;

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // by their place in the file
  std::map<std::string, std::string> metadata;
};

/// Parses `json` and checks that the tensors cover `data_bytes` without gap or overlap. Throws FileError,
/// which names `file`. Takes memory in proportion to the header alone.
SafetensorsHeader parse_header(std::string_view json, std::uint64_t data_bytes,
                               const std::filesystem::path& file);

/// The header of tensors written one after the other, padded with spaces to a multiple of 8 bytes. Throws
/// ShapeError where a shape is negative or too large or `bytes` does not fit it, ConfigError where a name is
/// used twice or cannot be written.
std::string build_header(std::span<const TensorToWrite> tensors,
                         const std::map<std::string, std::string>& metadata);

/// Bytes of a tensor of this shape; nothing where a dimension is negative or the product does not fit in 63
/// bits.
std::optional<std::uint64_t> byte_size(std::span<const std::int64_t> shape, Dtype dtype);

/// The dtype that a file calls `name`.
std::optional<Dtype> parse_dtype(std::string_view name);

/// "[2, 3]"
std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace mantissa::io
