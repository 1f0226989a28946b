// The values of a weight as a GGUF file stores them: rearranged by rows, and encoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/core/numeric/weight_format.h"
#include "mantissa/files/convert/rewrite.h"
#include "mantissa/files/gguf/rows.h"
#include "mantissa/files/gguf/tensor_type.h"
#include "mantissa/files/io/checkpoint.h"

namespace mantissa::convert {

struct GgufSource {
  const io::TensorInfo* tensor = nullptr;  // of the Hugging Face files
  gguf::Transform transform = gguf::Transform::none;
  std::int64_t heads = 1;
  std::uint64_t stream = 0;  // of stochastic rounding
  std::size_t to = 0;        // the tensor of the GGUF file
  std::uint64_t first = 0;   // element of that tensor with which the values begin
  /// The run that trained the weight computed with its values in this format: these are written.
  WeightFormat trained = WeightFormat::none;
};

/// Returns the type for a dtype that llama.cpp reads: F32, F16 or BF16. Throws ConfigError for another one,
/// that of the tensor `name`.
gguf::TensorType type_of(io::Dtype dtype, const std::string& name);

/// Rows of a tensor of the GGUF file. A vector has rows of one element.
struct RowRange {
  std::uint64_t first = 0, count = 0;
};

/// Returns ranges that together cover the tensor, of about kPiece elements each, and of multiples of 32
/// elements except the last. A transposed matrix is one range.
std::vector<RowRange> row_ranges(const GgufSource& source);

/// Encodes rows as F32, F16, BF16 or one of gguf::kWrittenTypes, with the rounding of `change`, and returns
/// the errors, for a gain those of gain + 1, and for a trained format those of its values. Throws FileError,
/// naming the tensor, if a quantized type cannot hold a block.
ErrorStats encode_rows(const io::WeightFiles& files, const GgufSource& source, gguf::TensorType type,
                       const RowRange& rows, const Change& change, std::vector<std::byte>& out);

}  // namespace mantissa::convert
