// The tensor types of GGUF files. Quantized types store blocks of elements of a row with shared scales.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mantissa/core/numeric/quants.h"

namespace mantissa::gguf {

/// The values are the numbers of ggml_type in files.
enum class TensorType : std::uint32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  f64 = 28,
  bf16 = 30,
  mxfp4 = 39
};

struct TypeTraits {
  std::uint32_t number = 0;  // in files
  const char* name = "";     // "Q4_1"
  std::uint64_t block = 1;   // elements of a block
  std::uint64_t bytes = 0;   // of a block
  bool readable = false;     // a TensorType: dequantize() accepts it
  bool plain = false;        // F64, F32, F16 or BF16: not quantized

  double bits() const { return 8 * static_cast<double>(bytes) / static_cast<double>(block); }
};

/// Returns the traits of a type's number in a file, also of types that cannot be dequantized here, or null
/// if ggml has no such type.
const TypeTraits* find_type(std::uint32_t number);
const TypeTraits& traits(TensorType type);

/// Returns the format of a type whose blocks are multiplied as they are stored, or null.
std::optional<QuantFormat> quant_format(TensorType type);

/// Returns the name in lower case, as origins and --dtype spell it: "q4_1".
std::string lower_name(const TypeTraits& type);

}  // namespace mantissa::gguf
