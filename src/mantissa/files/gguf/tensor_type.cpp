#include "mantissa/files/gguf/tensor_type.h"

#include <algorithm>
#include <cctype>

#include "mantissa/core/base/error.h"

namespace mantissa::gguf {
namespace {

// Sizes are those of ggml's block structures. Types that cannot be dequantized are listed so that a file with
// them can be checked and described.
constexpr TypeTraits kTypes[] = {
    {0, "F32", 1, 4, true, true},           {1, "F16", 1, 2, true, true},
    {2, "Q4_0", 32, 18, true, false},       {3, "Q4_1", 32, 20, true, false},
    {6, "Q5_0", 32, 22, true, false},       {7, "Q5_1", 32, 24, true, false},
    {8, "Q8_0", 32, 34, true, false},       {9, "Q8_1", 32, 36, false, false},
    {10, "Q2_K", 256, 84, true, false},     {11, "Q3_K", 256, 110, true, false},
    {12, "Q4_K", 256, 144, true, false},    {13, "Q5_K", 256, 176, true, false},
    {14, "Q6_K", 256, 210, true, false},    {15, "Q8_K", 256, 292, false, false},
    {16, "IQ2_XXS", 256, 66, false, false}, {17, "IQ2_XS", 256, 74, false, false},
    {18, "IQ3_XXS", 256, 98, false, false}, {19, "IQ1_S", 256, 50, false, false},
    {20, "IQ4_NL", 32, 18, false, false},   {21, "IQ3_S", 256, 110, false, false},
    {22, "IQ2_S", 256, 82, false, false},   {23, "IQ4_XS", 256, 136, false, false},
    {24, "I8", 1, 1, false, false},         {25, "I16", 1, 2, false, false},
    {26, "I32", 1, 4, false, false},        {27, "I64", 1, 8, false, false},
    {28, "F64", 1, 8, true, true},          {29, "IQ1_M", 256, 56, false, false},
    {30, "BF16", 1, 2, true, true},         {34, "TQ1_0", 256, 54, false, false},
    {35, "TQ2_0", 256, 66, false, false},   {39, "MXFP4", 32, 17, true, false},
    {40, "NVFP4", 64, 36, false, false},    {41, "Q1_0", 128, 18, false, false},
};

}  // namespace

const TypeTraits* find_type(std::uint32_t number) {
  const auto* found = std::ranges::find(kTypes, number, &TypeTraits::number);
  return found == std::end(kTypes) ? nullptr : found;
}

const TypeTraits& traits(TensorType type) {
  const TypeTraits* found = find_type(static_cast<std::uint32_t>(type));
  if (found == nullptr) throw InternalError("a tensor type has no traits");
  return *found;
}

std::optional<QuantFormat> quant_format(TensorType type) {
  switch (type) {
    case TensorType::q4_0:
      return QuantFormat::q4_0;
    case TensorType::q4_1:
      return QuantFormat::q4_1;
    case TensorType::q5_0:
      return QuantFormat::q5_0;
    case TensorType::q5_1:
      return QuantFormat::q5_1;
    case TensorType::q8_0:
      return QuantFormat::q8_0;
    default:
      return std::nullopt;
  }
}

std::string lower_name(const TypeTraits& type) {
  std::string name = type.name;
  std::ranges::transform(name, name.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  return name;
}

}  // namespace mantissa::gguf
