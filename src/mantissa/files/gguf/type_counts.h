// Counts the values of a GGUF file by type.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/files/gguf/gguf_file.h"

namespace mantissa::gguf {

struct TypeCount {
  const TypeTraits* type = nullptr;
  std::uint64_t tensors = 0, values = 0, bytes = 0;
};

/// Returns the types of the file, the one with most values first.
std::vector<TypeCount> type_counts(const GgufFile& file);

/// Returns the type with the fewest bits for a value, or null for a file without tensors.
const TypeTraits* narrowest_type(const GgufFile& file);

/// Returns for example "210 tensors of Q4_1, 61 of F32 and 1 of Q8_0".
std::string types_text(const std::vector<TypeCount>& counts);

}  // namespace mantissa::gguf
