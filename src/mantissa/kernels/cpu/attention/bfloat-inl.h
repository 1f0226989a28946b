// Loads bf16 operands of attention into tiles (kernels/cpu/attention/tiles-inl.h) as they are, without a
// detour through f32. Rows of a head are copied to scratch memory as words, two terms each, and rearranged
// from there.
#if defined(MANTISSA_KERNELS_CPU_ATTENTION_BFLOAT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_ATTENTION_BFLOAT_INL_H_
#undef MANTISSA_KERNELS_CPU_ATTENTION_BFLOAT_INL_H_
#else
#define MANTISSA_KERNELS_CPU_ATTENTION_BFLOAT_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "mantissa/kernels/cpu/attention/attention-inl.h"
#include "mantissa/kernels/cpu/attention/tiles-inl.h"
#include "mantissa/kernels/cpu/gemm/tiles_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace attention_parts {

/// Rows of a head as bf16 words, row_words(stride) each: an A of a product. `stride` is padded(head_dim).
class HeadWords {
 public:
  HeadWords(Word* first, std::size_t stride) : first_(first), words_(row_words(stride)), stride_(stride) {}

  /// True if operands of these types can be loaded: their values are multiplied as they are, and the words of
  /// rows take half of the memory of f32 rows.
  static bool Take(const Factor& operand, std::size_t stride, std::initializer_list<Scalar> types) {
    const auto as_it_is = [&](Scalar type) { return type == Scalar::bf16 && !Rounds(operand, type); };
    return stride % kTileBlock == 0 && std::all_of(types.begin(), types.end(), as_it_is);
  }

  /// The result of Load().
  struct Found {
    std::uint32_t exponent = 0;  // the smallest biased one, as Smallest::Exponent() returns it
    bool finite = true;
  };

  /// Copies rows [first, first + count) of a head, whose columns start at `column`, to the rows from `at` on,
  /// with zeros after head_dim.
  Found Load(const ConstMatrix& from, std::size_t first, std::size_t count, std::size_t column,
             std::size_t head_dim, std::size_t at) const {
    const hn::ScalableTag<Word> d;
    const hn::ScalableTag<std::uint16_t> d16;
    constexpr std::size_t kLanes16 = HWY_LANES(std::uint16_t);
    const auto source = [&](std::size_t i) {
      return static_cast<const std::uint16_t*>(from.data) + (first + i) * static_cast<std::size_t>(from.ld) +
             column;
    };
    const auto prefetch = [&](std::size_t i) {
      for (std::size_t j = 0; j < head_dim; j += kTileBlock) __builtin_prefetch(source(i) + j, 0, 2);
    };
    for (std::size_t i = 0; i < std::min(count, kHeadRowsAhead); ++i) prefetch(i);
    Smallest smallest;
    auto largest = hn::Zero(d16);  // magnitude
    for (std::size_t i = 0; i < count; ++i) {
      if (i + kHeadRowsAhead < count) prefetch(i + kHeadRowsAhead);
      auto* to = reinterpret_cast<std::uint16_t*>(Row(at + i));
      for (std::size_t j = 0; j < stride_; j += kLanes16) {
        const auto terms = j + kLanes16 <= head_dim
                               ? hn::LoadU(d16, source(i) + j)
                               : hn::MaskedLoad(hn::FirstN(d16, head_dim - std::min(head_dim, j)), d16,
                                                source(i) + std::min(head_dim, j));
        smallest.See(hn::BitCast(d, terms));
        largest = hn::Max(largest, hn::And(terms, hn::Set(d16, 0x7fff)));
        hn::StoreU(terms, d16, to + j);
      }
    }
    const bool finite = hn::AllTrue(d16, hn::Lt(largest, hn::Set(d16, 0x7f80)));
    return {smallest.Exponent(), finite};
  }

  /// Clears the rows around rows [begin, end), up to multiples of 32.
  void Pad(Range rows) const {
    std::fill(Row(rows.begin / kTileBlock * kTileBlock), Row(rows.begin), Word{0});
    std::fill(Row(rows.end), Row(blocks_of(rows.end) * kTileBlock), Word{0});
  }

  /// Writes the rows `terms`, transposed, as TileAcross. Pad(terms) must have cleared those around them.
  void Across(Range terms, Word* to) const {
    const hn::ScalableTag<std::uint16_t> d;
    constexpr std::size_t kLanes16 = HWY_LANES(std::uint16_t), kPiece = 8;
    for (std::size_t i = terms.begin / kTileBlock; i < blocks_of(terms.end); ++i) {
      Word* tiles = to + i * kEdge * stride_;
      for (std::size_t side = 0; side < stride_; side += kPiece) {
        auto* tile = reinterpret_cast<std::uint16_t*>(tiles + side * kEdge);
        for (std::size_t term = 0; term < kTileBlock; term += kLanes16) {
          tiles::TransposeTerms(
              [&](std::size_t t) {
                return reinterpret_cast<const std::uint16_t*>(Row(i * kTileBlock + term + t)) + side;
              },
              [&](std::size_t k, hn::Vec<decltype(d)> values)
                  HWY_ATTR { hn::StoreU(values, d, tile + k * kTileBlock + term); });
        }
      }
    }
  }

  /// Writes the rows `terms` as the columns of a product over them, as TileColumns. Pad(terms) must have
  /// cleared those around them.
  void Columns(Range terms, Word* to) const {
    const hn::ScalableTag<Word> d;
    const hn::Rebind<std::uint16_t, decltype(d)> half;
    const std::size_t end = row_words(terms.end);
    for (std::size_t p = terms.begin / kTileBlock * kEdge; p < end; ++p) {
      const auto *even = reinterpret_cast<const std::uint16_t*>(Row(2 * p)), *odd = even + 2 * words_;
      for (std::size_t j = 0; j < stride_; j += HWY_LANES(Word)) {
        const auto low = hn::PromoteTo(d, hn::LoadU(half, even + j)),
                   high = hn::PromoteTo(d, hn::LoadU(half, odd + j));
        hn::StoreU(hn::Or(low, hn::ShiftLeft<16>(high)), d, to + p * stride_ + j);
      }
    }
  }

  /// Writes `count` rows, a multiple of 16, as the columns of a product over head_dim: [words][ld].
  void Transposed(std::size_t count, Word* to, std::size_t ld) const {
    const hn::ScalableTag<Word> d;
    constexpr std::size_t kPiece = 16 / sizeof(Word);
    for (std::size_t row = 0; row < count; row += HWY_LANES(Word)) {
      for (std::size_t p = 0; p < words_; p += kPiece) {
        TransposePieces(
            d, [&](std::size_t i) { return Row(row + i) + p; }, p,
            [&](std::size_t at, hn::Vec<decltype(d)> words)
                HWY_ATTR { hn::StoreU(words, d, to + at * ld + row); });
      }
    }
  }

 private:
  Word* Row(std::size_t i) const { return first_ + i * words_; }

  Word* first_;
  std::size_t words_, stride_;
};

}  // namespace attention_parts
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_ATTENTION_BFLOAT_INL_H_
