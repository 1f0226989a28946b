#include "mantissa/kernels/hadamard.h"

#include <algorithm>

#include "mantissa/core/numeric/philox.h"
#include "mantissa/kernels/cpu/blocks/token_blocks.h"
#include "mantissa/kernels/cpu/piece.h"
#include "mantissa/kernels/cpu/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/blocks/hadamard.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/blocks/hadamard-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using mantissa::HWY_NAMESPACE::LoadRow;
using mantissa::HWY_NAMESPACE::RewriteRow;
using mantissa::HWY_NAMESPACE::StoreRow;

/// Transforms rows [begin, end) of one transform.
void TransformRows(ConstMatrix from, Matrix to, std::size_t width, std::uint16_t signs, Scalar rounded,
                   float factor, std::size_t begin, std::size_t end) {
  HWY_ALIGN float buffer[static_cast<std::size_t>(kHadamard) * kColumnPiece];
  for (std::size_t column = 0; column < width; column += kColumnPiece) {
    const std::size_t n = std::min(kColumnPiece, width - column);
    for (std::size_t row = begin; row < end; ++row)
      LoadRow<float>(from.data, from.type, row * width + column, n, buffer + (row - begin) * kColumnPiece);
    HadamardRows(buffer, end - begin, kColumnPiece, n, signs, rounded);
    for (std::size_t row = begin; row < end; ++row) {
      float* values = buffer + (row - begin) * kColumnPiece;
      if (factor != 1)
        RewriteRow(values, n, [factor](auto d, auto v) HWY_ATTR { return hn::Mul(v, hn::Set(d, factor)); });
      StoreRow<float>(values, n, to.data, to.type, row * width + column);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(TransformRows);

std::uint16_t hadamard_signs(std::uint64_t seed) {
  return static_cast<std::uint16_t>(RandomStream(seed, RandomUse::hadamard, 0, 0).bits(0));
}

void hadamard(const Context& ctx, std::int64_t tokens, std::int64_t width, ConstMatrix from, Matrix to,
              std::uint16_t signs, Scalar rounded, std::span<const Row> rows, float factor) {
  const std::vector<Row> blocks = token_blocks(tokens, kHadamard, rows);
  const auto transform = HWY_DISPATCH_TABLE(TransformRows)[ctx.target()];
  parallel_for(ctx, static_cast<std::int64_t>(blocks.size()), [&](std::int64_t i, int) {
    const Row& b = blocks[static_cast<std::size_t>(i)];
    transform(from, to, static_cast<std::size_t>(width), signs, rounded, factor,
              static_cast<std::size_t>(b.begin), static_cast<std::size_t>(b.begin + b.length));
  });
}

}  // namespace mantissa::kernels
#endif
