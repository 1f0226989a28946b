#include <array>

#include "mantissa/files/io/safetensors.h"

namespace mantissa::io {
namespace {

struct Row {
  Dtype dtype;
  std::string_view name, torch_name;
  std::size_t bytes;
};

constexpr std::array<Row, 19> kRows = {{{Dtype::f64, "F64", "float64", 8},
                                        {Dtype::f32, "F32", "float32", 4},
                                        {Dtype::bf16, "BF16", "bfloat16", 2},
                                        {Dtype::f16, "F16", "float16", 2},
                                        {Dtype::e4m3, "F8_E4M3", "float8_e4m3fn", 1},
                                        {Dtype::e5m2, "F8_E5M2", "float8_e5m2", 1},
                                        {Dtype::i64, "I64", "int64", 8},
                                        {Dtype::i32, "I32", "int32", 4},
                                        {Dtype::i16, "I16", "int16", 2},
                                        {Dtype::i8, "I8", "int8", 1},
                                        {Dtype::u8, "U8", "uint8", 1},
                                        {Dtype::boolean, "BOOL", "bool", 1},
                                        {Dtype::u64, "U64", "uint64", 8},
                                        {Dtype::u32, "U32", "uint32", 4},
                                        {Dtype::u16, "U16", "uint16", 2},
                                        {Dtype::c64, "C64", "complex64", 8},
                                        {Dtype::e8m0, "F8_E8M0", "float8_e8m0fnu", 1},
                                        {Dtype::e4m3fnuz, "F8_E4M3FNUZ", "float8_e4m3fnuz", 1},
                                        {Dtype::e5m2fnuz, "F8_E5M2FNUZ", "float8_e5m2fnuz", 1}}};

}  // namespace

std::string_view safetensors_name(Dtype dtype) {
  return kRows.at(static_cast<std::size_t>(dtype)).name;
}

std::string_view torch_name(Dtype dtype) {
  return kRows.at(static_cast<std::size_t>(dtype)).torch_name;
}

std::size_t bytes_of(Dtype dtype) {
  return kRows.at(static_cast<std::size_t>(dtype)).bytes;
}

std::optional<Scalar> scalar_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
      return Scalar::f64;
    case Dtype::f32:
      return Scalar::f32;
    case Dtype::bf16:
      return Scalar::bf16;
    case Dtype::f16:
      return Scalar::f16;
    case Dtype::e4m3:
      return Scalar::e4m3;
    case Dtype::e5m2:
      return Scalar::e5m2;
    default:
      return std::nullopt;
  }
}

Dtype dtype_of(Scalar s) {
  switch (s) {
    case Scalar::f64:
      return Dtype::f64;
    case Scalar::f32:
    case Scalar::tf32:
      return Dtype::f32;
    case Scalar::bf16:
      return Dtype::bf16;
    case Scalar::f16:
      return Dtype::f16;
    case Scalar::e5m2:
      return Dtype::e5m2;
    case Scalar::e4m3:
      return Dtype::e4m3;
  }
  return Dtype::f32;
}

std::optional<Dtype> parse_dtype(std::string_view name) {
  for (const Row& row : kRows) {
    if (row.name == name) return row.dtype;
  }
  return std::nullopt;
}

}  // namespace mantissa::io
