#include "mantissa/files/gguf/stored_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "mantissa/core/base/printable.h"
#include "mantissa/files/gguf/quants.h"

namespace mantissa::gguf {
namespace {

constexpr std::uint64_t kMostBlocks = 128;  // dequantized at a time

TensorType type_of(const FileTensor& tensor) {
  return static_cast<TensorType>(tensor.type->number);
}

}  // namespace

io::Dtype value_dtype(const GgufFile& file, const FileTensor& tensor) {
  if (!tensor.type->readable) {
    file.fail(
        fmt::format("tensor {} has the type {}, which is not supported. Supported: F64, F32, F16, BF16, "
                    "Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, MXFP4, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K",
                    name_in_quotes(tensor.name), tensor.type->name));
  }
  switch (type_of(tensor)) {
    case TensorType::f64:
      return io::Dtype::f64;
    case TensorType::f16:
      return io::Dtype::f16;
    case TensorType::bf16:
      return io::Dtype::bf16;
    default:
      return io::Dtype::f32;
  }
}

void read_values(const GgufFile& file, const FileTensor& tensor, std::uint64_t first,
                 std::span<std::byte> out) {
  const TypeTraits& type = *tensor.type;
  const std::span<const std::byte> stored = file.data(tensor);
  if (type.plain) {
    std::ranges::copy(stored.subspan(first * type.bytes, out.size()), out.begin());
    return;
  }
  const std::uint64_t end = first + out.size() / sizeof(float);
  std::vector<float> values(kMostBlocks * type.block);
  std::byte* to = out.data();
  for (std::uint64_t block = first / type.block; block * type.block < end;) {
    const std::uint64_t blocks = std::min(kMostBlocks, (end + type.block - 1) / type.block - block);
    dequantize(type_of(tensor), stored.data() + block * type.bytes, blocks, values.data());
    const std::uint64_t begin = block * type.block;
    const std::uint64_t from = std::max(first, begin), until = std::min(end, begin + blocks * type.block);
    std::memcpy(to, values.data() + (from - begin), (until - from) * sizeof(float));
    to += (until - from) * sizeof(float);
    block += blocks;
  }
}

}  // namespace mantissa::gguf
