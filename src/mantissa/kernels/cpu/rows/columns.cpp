#include "mantissa/kernels/columns.h"

#include <algorithm>
#include <cstring>

#include "mantissa/kernels/cpu/piece.h"
#include "mantissa/kernels/cpu/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/rows/columns.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/rows/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

template <class T>
void ConvertPieces(ConstMatrix from, Matrix to, std::size_t row, std::size_t width) {
  alignas(64) T buffer[kPiece];
  const std::size_t begin = row * static_cast<std::size_t>(from.ld);
  const std::size_t end = row * static_cast<std::size_t>(to.ld);
  for (std::size_t c = 0; c < width; c += kPiece) {
    const std::size_t n = std::min(kPiece, width - c);
    StoreRow(ViewRow<T>(from.data, from.type, begin + c, n, buffer), n, to.data, to.type, end + c);
  }
}

void ConvertRow(ConstMatrix from, Matrix to, std::size_t row, std::size_t width) {
  from.type == Scalar::f64 || to.type == Scalar::f64 ? ConvertPieces<double>(from, to, row, width)
                                                     : ConvertPieces<float>(from, to, row, width);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(ConvertRow);

ConstMatrix columns_from(ConstMatrix m, std::int64_t first) {
  const auto bytes = first * static_cast<std::int64_t>(bytes_of(m.type));
  return {static_cast<const std::byte*>(m.data) + bytes, m.type, m.ld};
}

Matrix columns_from(Matrix m, std::int64_t first) {
  const auto bytes = first * static_cast<std::int64_t>(bytes_of(m.type));
  return {static_cast<std::byte*>(m.data) + bytes, m.type, m.ld};
}

void copy_columns(const Context& ctx, std::int64_t rows, std::int64_t width, ConstMatrix from, Matrix to) {
  const auto n = static_cast<std::size_t>(width);
  const auto convert = HWY_DISPATCH_TABLE(ConvertRow)[ctx.target()];
  for_row_ranges(ctx, rows, width, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (from.type != to.type) {
        convert(from, to, i, n);
        continue;
      }
      const std::size_t bytes = bytes_of(to.type);
      std::memcpy(static_cast<std::byte*>(to.data) + i * static_cast<std::size_t>(to.ld) * bytes,
                  static_cast<const std::byte*>(from.data) + i * static_cast<std::size_t>(from.ld) * bytes,
                  n * bytes);
    }
  });
}

void zero_columns(const Context& ctx, std::int64_t rows, std::int64_t width, Matrix to) {
  const std::size_t bytes = bytes_of(to.type);
  for_row_ranges(ctx, rows, width, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      std::memset(static_cast<std::byte*>(to.data) + i * static_cast<std::size_t>(to.ld) * bytes, 0,
                  static_cast<std::size_t>(width) * bytes);
    }
  });
}

}  // namespace mantissa::kernels
#endif
