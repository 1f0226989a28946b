#include "mantissa/runtime/quantised.h"

#include "mantissa/kernels/update.h"

namespace mantissa::runtime {

std::vector<std::byte> quantised_elements(const kernels::Context& ctx, const void* blocks,
                                          const QuantisedMatrix& quants, Scalar type, std::int64_t rows,
                                          std::int64_t width) {
  // Rows of blocks follow one another without a gap.
  const auto n = static_cast<std::size_t>(rows * width);
  std::vector<float> values(n);
  dequantize(quants.format, static_cast<const std::uint8_t*>(blocks), 0, n, values.data());
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
