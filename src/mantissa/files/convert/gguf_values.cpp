#include "mantissa/files/convert/gguf_values.h"

#include <algorithm>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/printable.h"
#include "mantissa/core/numeric/convert.h"
#include "mantissa/core/numeric/encode_row.h"
#include "mantissa/files/convert/block_rows.h"
#include "mantissa/files/gguf/k_quants.h"
#include "mantissa/files/gguf/quants.h"
#include "mantissa/files/io/transpose.h"

namespace mantissa::convert {
namespace {

using gguf::TensorType;
using gguf::Transform;

/// Returns the elements of a row of the GGUF file; 1 for a vector.
std::uint64_t columns_of(const GgufSource& source) {
  const std::vector<std::int64_t>& shape = source.tensor->shape;
  const bool vector = source.transform == Transform::flattened || source.transform == Transform::part;
  if (shape.size() < 2 || vector) return 1;
  return static_cast<std::uint64_t>(source.transform == Transform::transposed ? shape.front() : shape.back());
}

/// Returns the stored bytes of rows in the order of the GGUF file.
std::vector<std::byte> stored_rows(const io::WeightFiles& files, const GgufSource& source,
                                   const RowRange& rows) {
  const io::TensorInfo& tensor = *source.tensor;
  const std::size_t row_bytes = columns_of(source) * io::bytes_of(tensor.dtype);
  std::vector<std::byte> stored(rows.count * row_bytes);
  switch (source.transform) {
    case Transform::none:
    case Transform::plus_one:
    case Transform::flattened:
    case Transform::part:
      files.read(tensor.name, stored, rows.first * row_bytes);
      return stored;
    case Transform::query_heads:
    case Transform::key_heads: {
      const gguf::HeadRows order(static_cast<std::uint64_t>(tensor.shape.front()),
                                 static_cast<std::uint64_t>(source.heads));
      for (std::uint64_t r = 0; r < rows.count; ++r)
        files.read(tensor.name, std::span(stored).subspan(r * row_bytes, row_bytes),
                   order.halves(rows.first + r) * row_bytes);
      return stored;
    }
    case Transform::transposed:
      files.read(tensor.name, stored);
      return io::transpose(stored, static_cast<std::size_t>(tensor.shape[0]),
                           static_cast<std::size_t>(tensor.shape[1]), io::bytes_of(tensor.dtype));
  }
  return stored;
}

Scalar scalar_of(TensorType type) {
  return type == TensorType::f16 ? Scalar::f16 : type == TensorType::bf16 ? Scalar::bf16 : Scalar::f32;
}

/// Encodes `values` in blocks, and replaces `after` by the values of the codes.
void encode_blocks(const io::TensorInfo& tensor, TensorType format, const std::vector<double>& values,
                   std::vector<std::byte>& out, std::vector<double>& after) {
  const std::vector<float> narrow(values.begin(), values.end());
  const gguf::TypeTraits& type = traits(format);
  const std::size_t blocks = narrow.size() / type.block;
  out.resize(blocks * type.bytes);
  if (!gguf::quantize(format, narrow.data(), narrow.size(), out.data())) {
    throw FileError("tensor {}: a block of {} cannot hold inf, nan{}. Fix: give --dtype f32 or bf16",
                    name_in_quotes(tensor.name), type.name,
                    format == TensorType::q8_0   ? " or values from 8.3e6 on"
                    : format == TensorType::q4_0 ? " or values from 5.2e5 on"
                    : gguf::is_k_type(format)    ? " or values whose scale exceeds f16"
                                                 : "");
  }
  std::vector<float> decoded(narrow.size());
  gguf::dequantize(format, out.data(), blocks, decoded.data());
  after.assign(decoded.begin(), decoded.end());
}

}  // namespace

gguf::TensorType type_of(io::Dtype dtype, const std::string& name) {
  switch (dtype) {
    case io::Dtype::f32:
      return gguf::TensorType::f32;
    case io::Dtype::f16:
      return gguf::TensorType::f16;
    case io::Dtype::bf16:
      return gguf::TensorType::bf16;
    default:
      throw ConfigError(
          "--format gguf: {} is {}, which llama.cpp does not read. Fix: give --dtype f32, bf16, f16 or {}",
          name, io::safetensors_name(dtype), gguf::written_types());
  }
}

std::vector<RowRange> row_ranges(const GgufSource& source) {
  const std::uint64_t columns = std::max<std::uint64_t>(1, columns_of(source));
  const std::uint64_t rows = static_cast<std::uint64_t>(source.tensor->count()) / columns;
  const bool whole = source.transform == Transform::transposed;
  const std::uint64_t step =
      whole ? std::max<std::uint64_t>(1, rows) : std::max<std::uint64_t>(1, kPiece / columns);
  std::vector<RowRange> ranges;
  for (std::uint64_t first = 0; first < rows; first += step)
    ranges.push_back({first, std::min(step, rows - first)});
  return ranges;
}

ErrorStats encode_rows(const io::WeightFiles& files, const GgufSource& source, gguf::TensorType type,
                       const RowRange& rows, const Change& change, std::vector<std::byte>& out) {
  const std::vector<std::byte> stored = stored_rows(files, source, rows);
  const std::uint64_t columns = columns_of(source);
  const std::size_t n = rows.count * columns;
  std::vector<double> before(n), after(n);
  load_row(stored.data(), *io::scalar_of(source.tensor->dtype), 0, n, before.data());
  if (source.transform == Transform::plus_one) {
    for (double& value : before) value += 1;
  }
  if (source.trained != WeightFormat::none) {
    std::vector<float> computed(before.begin(), before.end());
    for (std::uint64_t r = 0; r < rows.count; ++r)
      round_weights(source.trained, computed.data() + r * columns, columns);
    std::ranges::copy(computed, before.begin());
  }
  const Scalar format = scalar_of(type);
  if (!traits(type).plain) {
    encode_blocks(*source.tensor, type, before, out, after);
  } else {
    const RowRounding how = {change.rounding, change.saturate,
                             RandomStream(change.seed, RandomUse::conversion, source.stream, 0)};
    out.resize(n * bytes_of(format));
    encode_row(before.data(), n, out.data(), format, how, source.first + rows.first * columns);
    load_row(out.data(), format, 0, n, after.data());
  }
  ErrorStats errors;
  errors.add_row(before.data(), after.data(), n, format);
  return errors;
}

}  // namespace mantissa::convert
