// Parses and writes the JSON header of a safetensors file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/files/io/safetensors.h"

namespace mantissa::io {

/// The size limit of a header, from the format's specification.
inline constexpr std::uint64_t kLargestHeader = 100'000'000;

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // by offset in the file
  std::map<std::string, std::string> metadata;
};

/// Parses `json` and checks that the tensors cover `data_bytes` without gaps or overlaps. Throws FileError
/// with the name of `file`. Memory use is proportional to the header.
SafetensorsHeader parse_header(std::string_view json, std::uint64_t data_bytes,
                               const std::filesystem::path& file);

/// Returns the header of consecutive tensors, padded with spaces to a multiple of 8 bytes. Throws ShapeError
/// if a shape is negative, too large, or does not match `bytes`, and ConfigError if a name occurs twice or
/// cannot be written.
std::string build_header(std::span<const TensorToWrite> tensors,
                         const std::map<std::string, std::string>& metadata);

/// Returns the number of bytes of a tensor, or null if a dimension is negative or the product does not fit in
/// 63 bits.
std::optional<std::uint64_t> byte_size(std::span<const std::int64_t> shape, Dtype dtype);

/// Formats a shape, for example "[2, 3]".
std::string shape_text(std::span<const std::int64_t> shape);

}  // namespace mantissa::io
