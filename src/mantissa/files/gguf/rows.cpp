#include "mantissa/files/gguf/rows.h"

#include <cstring>

#include "mantissa/core/base/error.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/engine/model/decoder.h"

namespace mantissa::gguf {
namespace {

template <class T>
void add_as(std::span<const std::byte> from, io::Dtype from_dtype, std::span<std::byte> to, float constant) {
  const std::size_t n = to.size() / sizeof(T);
  std::vector<T> values(n);
  load_row(from.data(), *io::scalar_of(from_dtype), 0, n, values.data());
  for (T& value : values) value += static_cast<T>(constant);
  std::memcpy(to.data(), values.data(), to.size());
}

}  // namespace

std::int64_t heads_of(const model::ModelConfig& config, Transform transform) {
  if (transform != Transform::query_heads && transform != Transform::key_heads) return 1;
  const auto* decoder = dynamic_cast<const model::DecoderNetwork*>(config.network.get());
  if (decoder == nullptr) throw InternalError("the rows of heads of a model without a decoder");
  return transform == Transform::query_heads ? decoder->spec().heads : decoder->spec().kv_heads;
}

void add_constant(std::span<const std::byte> from, io::Dtype from_dtype, std::span<std::byte> to,
                  io::Dtype to_dtype, float constant) {
  if (to_dtype == io::Dtype::f64) return add_as<double>(from, from_dtype, to, constant);
  add_as<float>(from, from_dtype, to, constant);
}

}  // namespace mantissa::gguf
