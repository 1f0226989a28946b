// Values of a tensor of a GGUF file, in pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "mantissa/files/gguf/gguf_file.h"
#include "mantissa/files/io/dtype.h"

namespace mantissa::gguf {

/// Returns the dtype of the values that read_values() writes: that of a plain type, and f32 for a quantized
/// one. Throws FileError, naming tensor and type, if the type cannot be dequantized.
io::Dtype value_dtype(const GgufFile& file, const FileTensor& tensor);

/// Writes the elements that start at `first` to `out`, stored as value_dtype(). `out` may begin and end
/// within a block.
void read_values(const GgufFile& file, const FileTensor& tensor, std::uint64_t first,
                 std::span<std::byte> out);

}  // namespace mantissa::gguf
