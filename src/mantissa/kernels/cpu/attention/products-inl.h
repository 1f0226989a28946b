// The products of attention in either order of sums, by the unit that computes them.
#if defined(MANTISSA_KERNELS_CPU_ATTENTION_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_ATTENTION_PRODUCTS_INL_H_
#undef MANTISSA_KERNELS_CPU_ATTENTION_PRODUCTS_INL_H_
#else
#define MANTISSA_KERNELS_CPU_ATTENTION_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "mantissa/core/numeric/factor.h"
#include "mantissa/kernels/context.h"
#include "mantissa/kernels/cpu/attention/attention-inl.h"
#include "mantissa/kernels/cpu/attention/pairs-inl.h"
#include "mantissa/kernels/cpu/attention/tile-inl.h"
#include "mantissa/kernels/cpu/attention/tiles-inl.h"
#include "mantissa/kernels/units.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace attention_parts {

/// How a task's operands lie once they are loaded: as values, in words of VDPBF16PS, or in tiles.
enum class Operands : std::uint8_t { values, pairs, tiles };

/// Returns how operands lie for the unit that computes the sums of T of factors that `operand` rounds, for
/// tasks of `rows` rows.
template <class T>
Operands OperandsOf(Simd simd, SumOrder order, const Factor& operand, std::size_t rows) {
  if (!std::is_same_v<T, float>) return Operands::values;
  const mantissa::Product product{Scalar::f32, operand, operand, {Scalar::f32, 0, order}};
  switch (unit_of(simd, product, attention_kernel(product, static_cast<std::int64_t>(rows))).id) {
    case UnitId::vdpbf16ps:
      return Operands::pairs;
    case UnitId::tdpbf16ps:
    case UnitId::tile_model:
      return Operands::tiles;
    case UnitId::fma:
      break;
  }
  return Operands::values;
}

/// Configures the tiles of a task whose operands lie in them.
inline std::optional<tiles::Scope> ScopeOf(Operands operands, const AttentionTiles& unit) {
  if (operands != Operands::tiles) return std::nullopt;
  return std::optional<tiles::Scope>(std::in_place, unit.model());
}

/// Replaces `count` rows of f32 values, `stride` apart, by the words of kernels/cpu/attention/pairs-inl.h.
/// Returns the smallest biased exponent of a value that is not zero.
template <class T>
std::uint32_t PairByRows(T* rows, std::size_t count, std::size_t stride, std::size_t n) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (std::is_same_v<T, float>) {
    Smallest smallest;
    for (std::size_t i = 0; i < count; ++i, rows += stride)
      PairRow(rows, n, reinterpret_cast<Word*>(rows), smallest);
    return smallest.Exponent();
  }
#endif
  static_cast<void>(rows), static_cast<void>(count), static_cast<void>(stride), static_cast<void>(n);
  return 0;
}

/// The same by columns, for rows [first, end) of `block`. The rows of the first and of the last group that
/// are not in the range become zeros. With `to`, the words are at this place, as if it were the block.
template <class T>
std::uint32_t PairByColumns(T* block, std::size_t first, std::size_t end, std::size_t stride, std::size_t n,
                            T* to = nullptr) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (std::is_same_v<T, float>) {
    const std::size_t begin = first / kGroup * kGroup, last = pairs::groups_of(end) * kGroup;
    std::fill(block + begin * stride, block + first * stride, T{0});
    std::fill(block + end * stride, block + last * stride, T{0});
    Smallest smallest;
    PairColumns(block + begin * stride, end - begin, stride, n,
                reinterpret_cast<Word*>((to != nullptr ? to : block) + begin / 2 * stride), smallest);
    return smallest.Exponent();
  }
#endif
  static_cast<void>(block), static_cast<void>(first), static_cast<void>(end), static_cast<void>(stride);
  static_cast<void>(n), static_cast<void>(to);
  return 0;
}

/// How the operands of a product are multiplied: as values, as words by the unit, or as words by fused
/// multiply-adds.
enum class Layout : std::uint8_t { values, words, slow_words };

/// Returns the layout for words of factors with these smallest exponents.
inline Layout WordsOf(std::uint32_t a, std::uint32_t b) {
  return bf16::NeverSubnormal(a, b) ? Layout::words : Layout::slow_words;
}

/// How products are summed: in tile order, or in chains.
struct Summation {
  SumOrder order = SumOrder::chain;
  int parts = 1;
  Layout layout = Layout::values;
  /// Returns the number of sums that Into::extend continues.
  std::size_t Continued() const {
    return order == SumOrder::tile ? products_of_parts(static_cast<std::size_t>(parts)) : 1;
  }
};

/// C[rows, columns] from terms [first, first + depth) of A[rows, …] · B[…, columns]. Terms are numbered as
/// kernels/attention.h states it; `a` and `b` start at term 0. Layout::words reads whole groups of terms, so
/// those around the range must be zero in A or B and finite in the other. The sums that Into::extend
/// continues are `c_plane` apart.
template <Left kLeft, class T>
void OrderedProduct(const Summation& summation, std::size_t rows, Planes<T> a, std::size_t a_stride,
                    Planes<T> b, std::size_t b_stride, std::size_t columns, std::size_t first,
                    std::size_t depth, T* c, std::size_t c_stride, Into into, std::size_t c_plane = 0) {
#if HWY_TARGET == HWY_AVX3
  if constexpr (std::is_same_v<T, float>) {
    if (summation.layout != Layout::values) {
      PairProduct<kLeft>(summation.layout == Layout::words, rows, reinterpret_cast<const Word*>(a.first),
                         a_stride, reinterpret_cast<const Word*>(b.first), b_stride, columns, first, depth, c,
                         c_stride, into);
      return;
    }
  }
#endif
  a.first += kLeft == Left::rows ? first : first * a_stride;
  b.first += first * b_stride;
  if constexpr (std::is_same_v<T, float>) {
    if (summation.order == SumOrder::tile) {
      TileProductOfParts<kLeft>(summation.parts, rows, a, a_stride, b, b_stride, columns, first, depth, c,
                                c_stride, c_plane, into);
      return;
    }
  }
  ProductOfParts<kLeft, T>(summation.parts, rows, a, a_stride, b, b_stride, columns, depth, c, c_stride,
                           into);
}

}  // namespace attention_parts
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_ATTENTION_PRODUCTS_INL_H_
