#include "mantissa/engine/runtime/quantized.h"

#include "mantissa/kernels/update.h"

namespace mantissa::runtime {

std::vector<std::byte> quantized_elements(const kernels::Context& ctx, const void* blocks,
                                          const QuantizedMatrix& quants, Scalar type, std::int64_t rows,
                                          std::int64_t width) {
  const auto n = static_cast<std::size_t>(rows * width);
  std::vector<float> values(n);
  const QuantRows stored_rows = quants.rows_of(blocks, rows, width);
  for (std::size_t i = 0; i < n; i += stored_rows.width)
    dequantize(stored_rows, i / stored_rows.width, 0, stored_rows.width, values.data() + i);
  if (quants.transposed) {
    const std::vector<float> stored = std::move(values);
    const auto r = static_cast<std::size_t>(rows), w = static_cast<std::size_t>(width);
    values.resize(n);
    for (std::size_t i = 0; i < r; ++i) {
      for (std::size_t j = 0; j < w; ++j) values[i * w + j] = stored[j * r + i];
    }
  }
  std::vector<std::byte> elements(n * bytes_of(type));
  kernels::cast(ctx, rows * width, values.data(), Scalar::f32, elements.data(), type);
  return elements;
}

}  // namespace mantissa::runtime
