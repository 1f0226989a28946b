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

#include "mantissa/core/numeric/card_sum.h"
#include "mantissa/core/numeric/factor.h"
#include "mantissa/kernels/context.h"
#include "mantissa/kernels/cpu/attention/attention-inl.h"
#include "mantissa/kernels/cpu/attention/pairs-inl.h"
#include "mantissa/kernels/cpu/attention/tile-inl.h"
#include "mantissa/kernels/cpu/attention/tiles-inl.h"
#include "mantissa/kernels/cpu/cards/card_product-inl.h"
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

/// C[rows, columns] from the visible terms in the order of a card, whose accumulators Into::extend continues.
template <Left kLeft>
void CardProduct(const CardSum& sum, std::size_t rows, const float* a, std::size_t a_stride, const float* b,
                 std::size_t b_stride, std::size_t columns, std::size_t first, std::size_t depth, float* c,
                 std::size_t c_stride, Into into) {
  const card_sums::LeftRows left =
      kLeft == Left::rows ? card_sums::LeftRows{a, a_stride, 1} : card_sums::LeftRows{a, 1, a_stride};
  if (into == Into::extend)
    return card_sums::AddProduct(sum, rows, left, b, b_stride, columns, first, depth, c, c_stride);
  const hn::ScalableTag<float> d;
  HWY_ALIGN float apart[kMr * kNr<float>];
  for (std::size_t j = 0; j < columns; j += kNr<float>) {
    const std::size_t width = std::min(kNr<float>, columns - j);
    std::fill_n(apart, rows * kNr<float>, 0.0F);
    card_sums::AddProduct(sum, rows, left, b + j, b_stride, width, first, depth, apart, kNr<float>);
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t v = 0; v < width; v += hn::Lanes(d)) {
        float* to = c + i * c_stride + j + v;
        const auto total = hn::Load(d, apart + i * kNr<float> + v);
        hn::StoreU(into == Into::add ? hn::Add(hn::LoadU(d, to), total) : total, d, to);
      }
    }
  }
}

/// How products are summed: in tile order, in chains, or as a card does.
struct Summation {
  SumOrder order = SumOrder::chain;
  int parts = 1;
  Layout layout = Layout::values;
  const CardSum* card = nullptr;  // in the order of a card
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
    if (summation.order == SumOrder::card) {
      return CardProduct<kLeft>(*summation.card, rows, a.first, a_stride, b.first, b_stride, columns, first,
                                depth, c, c_stride, into);
    }
  }
  ProductOfParts<kLeft, T>(summation.parts, rows, a, a_stride, b, b_stride, columns, depth, c, c_stride,
                           into);
}

/// A product over head_dim of rows of K or V and a tile of queries: S = K·Qᵀ or dPᵀ = V·dOᵀ.
template <class T>
struct HeadProduct {
  Planes<T> rows;     // [keys, padded(head_dim)]
  Planes<T> queries;  // [padded(head_dim), ld]: Q or dO, transposed
  std::size_t ld, width, head_dim;
  Summation sums;
};

/// The products of one task: their unit, and the order and parts of their sums.
template <class T>
class TaskProducts {
 public:
  /// For a task of `rows` rows whose factors `operand` rounds.
  TaskProducts(Simd simd, const Accumulator& accumulator, const Factor& operand, std::size_t rows)
      : operands_(OperandsOf<T>(simd, accumulator.order, operand, rows)),
        order_(accumulator.order),
        card_(find_card_sum(accumulator, operand.format, operand.format).value_or(CardSum{})),
        parts_(operand.parts),
        tiles_(simd == Simd::amx_model) {}

  /// True if operands lie in tiles.
  bool Tiled() const { return std::is_same_v<T, float> && operands_ == Operands::tiles; }
  /// True if operands lie in words of VDPBF16PS.
  bool Paired() const { return operands_ == Operands::pairs; }
  /// True if masked terms must not be multiplied, even by zero.
  bool LeavesMaskedOut() const { return order_ == SumOrder::card; }
  /// True if operands lie in words of either unit, which multiply whole blocks or groups of terms.
  bool InWords() const { return operands_ != Operands::values; }
  const AttentionTiles& Tiles() const { return tiles_; }
  /// Configures the tiles, if the task uses them.
  std::optional<tiles::Scope> Scope() const {
    if (!Tiled()) return std::nullopt;
    return std::optional<tiles::Scope>(std::in_place, tiles_.model());
  }

  /// The most queries of a tile of scores.
  std::size_t Width() const { return Tiled() ? kSides : kNr<T>; }
  /// The most rows of the left operand that are multiplied at a time.
  std::size_t Height() const { return Tiled() ? kSides : kMr; }

  /// How operands with these smallest exponents are summed. Masked terms of a unit's words are multiplied
  /// too, so they must be finite.
  Summation Sums(bool finite, std::uint32_t a, std::uint32_t b) const {
    Summation sums = {order_, parts_, Layout::values, &card_};
    if (InWords()) sums.layout = finite ? WordsOf(a, b) : Layout::slow_words;
    return sums;
  }

  /// The row from which MultiplyHead() must start to include row `row` of a key block.
  std::size_t FirstRow(std::size_t row) const { return Tiled() ? row / kEdge * kEdge : row; }

  /// Computes `count` ≤ Height() rows of the product, from row `row` on: to[count, p.ld].
  void MultiplyHead(const HeadProduct<T>& p, std::size_t row, std::size_t count, T* to) const {
    const std::size_t stride = padded(p.head_dim);
    if constexpr (std::is_same_v<T, float>) {
      if (Tiled()) {
        const TiledProduct product = {RowsPanel(WordsAt(p.rows.first), stride).From(row),
                                      ColumnsPanel(WordsAt(p.queries.first), p.ld),
                                      {0, p.head_dim},
                                      count,
                                      p.width,
                                      to,
                                      p.ld,
                                      Into::set};
        return tiles_.Multiply(product, p.sums.layout == Layout::words);
      }
    }
    OrderedProduct<Left::rows, T>(p.sums, count, p.rows.from(row * stride), stride, p.queries, p.ld, p.width,
                                  0, p.head_dim, to, p.ld, Into::set);
  }

 private:
  Operands operands_;
  SumOrder order_;
  CardSum card_;
  int parts_;
  AttentionTiles tiles_;
};

}  // namespace attention_parts
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_ATTENTION_PRODUCTS_INL_H_
