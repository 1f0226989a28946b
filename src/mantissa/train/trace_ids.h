// What a trace runs over: ids and labels of one length, from a file or from memory.
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

/// "input_ids" [rows, length] of a safetensors file, I32 or I64, and "labels" of the same shape; `input_ids`
/// where there are none. Throws FileError, DtypeError, ShapeError, and ConfigError for an id outside
/// [0, vocabulary).
TraceIds trace_ids(const std::filesystem::path& file, std::int64_t vocabulary);

/// The same from memory. Throws ShapeError where rows differ in length.
TraceIds trace_ids(const std::vector<std::vector<std::int32_t>>& ids,
                   const std::vector<std::vector<std::int32_t>>& labels, std::int64_t vocabulary);

}  // namespace mantissa::train
