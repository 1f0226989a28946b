#include "mantissa/kernels/dropout.h"

#include <algorithm>

#include "mantissa/kernels/cpu/piece.h"
#include "mantissa/kernels/cpu/tasks.h"
#include "mantissa/kernels/token_bits.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/rows/dropout.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/convert-inl.h"
#include "mantissa/core/numeric/stochastic-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
using mantissa::HWY_NAMESPACE::LoadRow;
using mantissa::HWY_NAMESPACE::RandomRow;
using mantissa::HWY_NAMESPACE::StoreRow;

/// One token's elements, from `offset` on; the first has number `index` in its sequence.
template <class T>
void DropRow(ConstMatrix from, Matrix to, std::size_t offset, std::size_t n, const Dropout& how,
             const RandomStream& stream, std::uint64_t index) {
  HWY_ALIGN T values[kPiece];
  HWY_ALIGN std::uint32_t bits[kPiece];
  const std::uint32_t threshold = how.threshold();
  const T factor = static_cast<T>(how.factor());
  for (std::size_t i = 0; i < n; i += kPiece) {
    const std::size_t count = std::min(kPiece, n - i);
    RandomRow(stream, index + i, count, bits);
    LoadRow<T>(from.data, from.type, offset + i, count, values);
    for (std::size_t j = 0; j < count; ++j) values[j] = bits[j] < threshold ? T{0} : values[j] * factor;
    StoreRow<T>(values, count, to.data, to.type, offset + i);
  }
}

void DropToken(ConstMatrix from, Matrix to, std::size_t offset, std::size_t n, const Dropout& how,
               const RandomStream& stream, std::uint64_t index) {
  from.type == Scalar::f64 || to.type == Scalar::f64
      ? DropRow<double>(from, to, offset, n, how, stream, index)
      : DropRow<float>(from, to, offset, n, how, stream, index);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(DropToken);

void dropout(const Context& ctx, const Extent& extent, std::int64_t width, ConstMatrix from, Matrix to,
             const Dropout& how) {
  const auto drop = HWY_DISPATCH_TABLE(DropToken)[ctx.target()];
  const auto n = static_cast<std::size_t>(width);
  for_row_ranges(ctx, extent.tokens, width, [&](std::size_t begin, std::size_t end) {
    for (std::size_t t = begin; t < end; ++t) {
      const TokenBits bits = token_bits(extent, static_cast<std::int64_t>(t), how.name, RandomUse::dropout);
      drop(from, to, t * n, n, how, bits.stream, bits.position * n);
    }
  });
}

}  // namespace mantissa::kernels
#endif
