// The ids and labels of a trace, from a file or from memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

namespace mantissa::train {

/// A label that is not predicted, as in PyTorch.
inline constexpr std::int64_t kIgnoredLabel = -100;

struct TraceIds {
  std::int64_t rows = 0;
  std::int64_t length = 0;
  std::vector<std::int64_t> ids, labels;  // [rows, length], aligned
};

/// Reads "input_ids" [rows, length], I32 or I64, and "labels" of the same shape from a safetensors file.
/// If there are none, the ids are the labels. Throws FileError, DtypeError, ShapeError, and ConfigError for
/// an id outside [0, vocabulary).
TraceIds trace_ids(const std::filesystem::path& file, std::int64_t vocabulary);

/// Returns ids and labels from memory. Without labels, the ids are the labels. Throws ShapeError if
/// there are no ids or rows differ in length, and ConfigError as above.
TraceIds trace_ids(const std::vector<std::vector<std::int32_t>>& ids,
                   const std::vector<std::vector<std::int32_t>>& labels, std::int64_t vocabulary);

}  // namespace mantissa::train
