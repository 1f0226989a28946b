// The element types of checkpoint files, and the description of a tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/core/numeric/format.h"

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

}  // namespace mantissa::io
