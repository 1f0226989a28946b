// Products of attention by the tiles of TDPBF16PS (kernels/cpu/tiles/tile_panels-inl.h): operands in tiles,
// and sums of their products.
//
// A has the rows of a product, and each row has its terms in words: two consecutive terms, the first in the
// low half. B has the columns, in words of the same terms. The products are S = K·Qᵀ and dPᵀ = V·dOᵀ, whose
// results lie by keys as on other units, Oᵀ = Vᵀ·P, dV = Pᵀ·dO, dK = dSᵀ·Q and dQᵀ = Kᵀ·dS. O and dQ are
// transposed, so that P and dS, which are new for every tile of queries, are never.
//
// Blocks of terms that are only partly in a range are multiplied whole. Terms that do not belong to a sum
// must be zero in A or B and finite in the other.
#if defined(MANTISSA_KERNELS_CPU_ATTENTION_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_ATTENTION_TILES_INL_H_
#undef MANTISSA_KERNELS_CPU_ATTENTION_TILES_INL_H_
#else
#define MANTISSA_KERNELS_CPU_ATTENTION_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/kernels/cpu/attention/attention-inl.h"
#include "mantissa/kernels/cpu/tiles/tile_panels-inl.h"
#include "mantissa/kernels/guard_count.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace attention_parts {

using bf16::BitsOf;
using bf16::Smallest;
using bf16::Word;
using tiles::blocks_of;
using tiles::kEdge;
using tiles::kSides;
using tiles::kTileWords;
using tiles::TilePlaces;

static_assert(kSides == kWidestTile && kEdge == kLanes);

/// Scratch memory of f32 values as words.
inline Word* WordsAt(float* values) {
  return reinterpret_cast<Word*>(values);
}
inline const Word* WordsAt(const float* values) {
  return reinterpret_cast<const Word*>(values);
}

/// Returns the words of a row of A with `n` terms, in whole blocks: at most as many as the padded row has
/// values.
constexpr std::size_t row_words(std::size_t n) {
  return blocks_of(n) * kEdge;
}

// ---- Operands. Each function returns the smallest biased exponent of a value that is not zero (0 for a
// subnormal number, 512 if all are zero). Values must be bf16 numbers in f32. ----

/// Writes A from `count` rows of `n` values, `stride` apart: rows of row_words(n) words. `n` is a multiple of
/// 16. `to` may be at or before `rows`.
inline std::uint32_t TileRows(const float* rows, std::size_t count, std::size_t stride, std::size_t n,
                              Word* to) {
  const hn::ScalableTag<Word> d;
  const hn::Repartition<std::uint16_t, decltype(d)> d16;
  constexpr std::size_t kStep = HWY_LANES(Word);
  Smallest smallest;
  for (std::size_t i = 0; i < count; ++i, rows += stride, to += row_words(n)) {
    const auto term = [&](std::size_t k) HWY_ATTR { return k < n ? BitsOf(rows + k) : hn::Zero(d); };
    for (std::size_t k = 0; k < 2 * row_words(n); k += 2 * kStep) {
      const auto words =
          hn::BitCast(d, hn::ConcatOdd(d16, hn::BitCast(d16, term(k + kStep)), hn::BitCast(d16, term(k))));
      smallest.See(words);
      hn::StoreU(words, d, to + k / 2);
    }
  }
  return smallest.Exponent();
}

/// Joins the values of two terms.
HWY_INLINE hn::Vec<hn::ScalableTag<Word>> JoinTerms(hn::Vec<hn::ScalableTag<Word>> even,
                                                    hn::Vec<hn::ScalableTag<Word>> odd) {
  const hn::ScalableTag<Word> d;
  return hn::Or(hn::ShiftRight<16>(even), hn::And(odd, hn::Set(d, 0xffff0000)));
}

/// Writes B from rows `terms` of `block`, each the `n` values of a term, `stride` apart: the words of terms
/// 2p and 2p + 1 are at to[p · stride], in whole blocks. Missing terms become zeros. `n` is a multiple of 16.
/// `to` may be the block.
inline std::uint32_t TileColumns(const float* block, Range terms, std::size_t stride, std::size_t n,
                                 Word* to) {
  const hn::ScalableTag<Word> d;
  Smallest smallest;
  const std::size_t first = terms.begin / kTileBlock * kEdge, end = row_words(terms.end);
  const auto inside = [&](std::size_t k) { return k >= terms.begin && k < terms.end; };
  for (std::size_t p = first; p < end; ++p) {
    const float *even = block + 2 * p * stride, *odd = even + stride;
    const bool has_even = inside(2 * p), has_odd = inside(2 * p + 1);
    for (std::size_t j = 0; j < n; j += HWY_LANES(Word)) {
      const auto words =
          JoinTerms(has_even ? BitsOf(even + j) : hn::Zero(d), has_odd ? BitsOf(odd + j) : hn::Zero(d));
      smallest.See(words);
      hn::StoreU(words, d, to + p * stride + j);
    }
  }
  return smallest.Exponent();
}

/// Writes A, transposed: its rows are the columns of `block`, whose rows `terms` are terms. Each block of 32
/// terms becomes stride / 16 tiles. Missing terms become zeros. `to` may be the block if `spare` has space
/// for 32 of its rows.
inline std::uint32_t TileAcross(const float* block, Range terms, std::size_t stride, float* spare, Word* to) {
  const hn::ScalableTag<Word> d;
  Smallest smallest;
  HWY_ALIGN Word joined[kTileWords];
  const std::size_t begin = terms.begin / kTileBlock;
  for (std::size_t i = begin; i < blocks_of(terms.end); ++i) {
    const float* rows = block + i * kTileBlock * stride;
    if (i == 0 && spare != nullptr) {  // only the first block's tiles lie in its own rows
      const std::size_t last = std::min<std::size_t>(terms.end, kTileBlock);
      std::copy(rows + terms.begin * stride, rows + last * stride, spare + terms.begin * stride);
      rows = spare;
    }
    const auto term = [&](std::size_t k, std::size_t j) HWY_ATTR {
      const std::size_t number = i * kTileBlock + k;
      return number >= terms.begin && number < terms.end ? BitsOf(rows + k * stride + j) : hn::Zero(d);
    };
    Word* tile = to + i * kEdge * stride;
    for (std::size_t side = 0; side < stride; side += kEdge, tile += kTileWords) {
      for (std::size_t p = 0; p < kEdge; ++p) {
        for (std::size_t j = 0; j < kEdge; j += HWY_LANES(Word))
          hn::Store(JoinTerms(term(2 * p, side + j), term(2 * p + 1, side + j)), d, joined + p * kEdge + j);
      }
      tiles::TransposeTile([&](std::size_t p) { return joined + p * kEdge; }, tile, smallest);
    }
  }
  return smallest.Exponent();
}

/// Returns the places of tiles, with distances in words.
inline TilePlaces InWords(const Word* words, std::size_t row, std::size_t half, std::size_t block) {
  constexpr std::size_t kWord = sizeof(Word);
  return {reinterpret_cast<const std::uint8_t*>(words), row * kWord, half * kWord, block * kWord};
}
/// The tiles that TileRows wrote, of rows with `n` terms.
inline TilePlaces RowsPanel(const Word* words, std::size_t n) {
  return InWords(words, row_words(n), kEdge * row_words(n), kEdge);
}
/// The tiles that TileColumns wrote.
inline TilePlaces ColumnsPanel(const Word* words, std::size_t stride) {
  return InWords(words, stride, kEdge, kEdge * stride);
}
/// The tiles that TileAcross wrote.
inline TilePlaces AcrossPanel(const Word* words, std::size_t stride) {
  return InWords(words, kEdge, kTileWords, kEdge * stride);
}

// ---- Products ----

/// C[rows, columns] from A[rows, …] · B[…, columns]. Both operands start at block 0 of the terms' numbers. C
/// has space for a multiple of 16 rows; only Into::add leaves those from `rows` on as they are. `columns` is
/// a multiple of 16.
struct TiledProduct {
  TilePlaces a, b;
  Range terms;
  std::size_t rows, columns;
  float* c;
  std::size_t ldc;
  Into into;
};

/// C[32, 32] or less of a product.
template <class Tiles>
HWY_NOINLINE void TileSquare(const TiledProduct& p, std::size_t row, std::size_t column) {
  const std::size_t first = p.terms.begin / kTileBlock, blocks = blocks_of(p.terms.end) - first;
  const std::size_t rows = std::min(kSides, p.rows - row);
  const bool two_rows = rows > kEdge, two_columns = p.columns - column > kEdge;
  const TilePlaces a = p.a.From(row, first), b = p.b.From(column, first);
  float* c = p.c + row * p.ldc + column;
  HWY_ALIGN float apart[kSides * kSides];
  float* sums = p.into == Into::add ? apart : c;
  const std::size_t ld = p.into == Into::add ? kSides : p.ldc;
  const bool from_zero = p.into != Into::extend;
  if (two_rows) {
    two_columns ? tiles::AddBlocks<Tiles, true, true>(blocks, a, b, sums, ld, from_zero)
                : tiles::AddBlocks<Tiles, true, false>(blocks, a, b, sums, ld, from_zero);
  } else {
    two_columns ? tiles::AddBlocks<Tiles, false, true>(blocks, a, b, sums, ld, from_zero)
                : tiles::AddBlocks<Tiles, false, false>(blocks, a, b, sums, ld, from_zero);
  }
  if (p.into != Into::add) return;
  const hn::ScalableTag<float> d;
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < (two_columns ? kSides : kEdge); j += HWY_LANES(float)) {
      float* to = c + i * p.ldc + j;
      hn::StoreU(hn::Add(hn::LoadU(d, to), hn::Load(d, apart + i * kSides + j)), d, to);
    }
  }
}

/// The vector of C from `column` on, in row `row`, by fused multiply-adds.
template <class Terms>
HWY_INLINE void SlowVector(const TiledProduct& p, std::size_t row, std::size_t column, const Terms& terms) {
  const hn::ScalableTag<float> d;
  const std::size_t first = p.terms.begin / kTileBlock, blocks = blocks_of(p.terms.end) - first;
  float* c = p.c + row * p.ldc + column;
  const auto before = p.into == Into::extend ? hn::LoadU(d, c) : hn::Zero(d);
  const auto sums =
      tiles::SlowSums(blocks, p.a.From(0, first), row, p.b.From(0, first), column, before, terms);
  hn::StoreU(p.into == Into::add ? hn::Add(hn::LoadU(d, c), sums) : sums, d, c);
}

/// Computes products of attention, within the lifetime of a tiles::Scope.
class AttentionTiles {
 public:
  explicit AttentionTiles(bool model) : model_(model) {}
  bool model() const { return model_; }

  /// Multiplies by tiles or, unless `fast`, by fused multiply-adds. Sums that Into::extend continues must
  /// come from products whose factors are as large as tiles require.
  void Multiply(const TiledProduct& p, bool fast) const {
    GuardTask::add(fast);
    if (!fast) return MultiplySlowly(p);
    const auto square = model_ ? &TileSquare<ModelTiles> : &TileSquare<tiles::Amx>;
    for (std::size_t i = 0; i < p.rows; i += kSides) {
      for (std::size_t j = 0; j < p.columns; j += kSides) square(p, i, j);
    }
  }

  /// Multiplies exactly the terms terms_of(row, column) of each sum. Other terms need not be finite.
  template <class TermsOf>
  HWY_NOINLINE void MultiplyVisible(const TiledProduct& p, const TermsOf& terms_of) const {
    HWY_ALIGN std::int32_t begin[kEdge], end[kEdge];
    const std::size_t first = p.terms.begin / kTileBlock * kTileBlock;
    for (std::size_t i = 0; i < p.rows; ++i) {
      for (std::size_t j = 0; j < p.columns; j += HWY_LANES(float)) {
        for (std::size_t lane = 0; lane < HWY_LANES(float); ++lane) {
          const Range terms = terms_of(i, j + lane);
          begin[lane] = static_cast<std::int32_t>(terms.begin) - static_cast<std::int32_t>(first);
          end[lane] = static_cast<std::int32_t>(terms.end) - static_cast<std::int32_t>(first);
        }
        SlowVector(p, i, j, tiles::TermsOfLanes(begin, end));
      }
    }
  }

  /// Multiplies masked terms too if they are `finite`: their other factor is zero. Otherwise multiplies
  /// exactly the terms terms_of(row, column).
  template <class TermsOf>
  void MultiplyMasked(const TiledProduct& p, bool finite, bool fast, const TermsOf& terms_of) const {
    finite ? Multiply(p, fast) : MultiplyVisible(p, terms_of);
  }

 private:
  static HWY_NOINLINE void MultiplySlowly(const TiledProduct& p) {
    for (std::size_t i = 0; i < p.rows; ++i) {
      for (std::size_t j = 0; j < p.columns; j += HWY_LANES(float)) SlowVector(p, i, j, tiles::EveryTerm());
    }
  }

  bool model_;
};

/// Adds `across`, [n][ld] with `count` columns, to `count` rows at to(i). `n` is a multiple of 16.
template <class T, class RowAt>
void AddTransposed(const T* across, std::size_t ld, std::size_t count, std::size_t n, const RowAt& to) {
  const hn::ScalableTag<T> d;
  HWY_ALIGN T rows[kEdge * kEdge];
  for (std::size_t i = 0; i < count; i += kEdge) {
    for (std::size_t j = 0; j < n; j += kEdge) {
      Transpose(across + j * ld + i, ld, kEdge, kEdge, rows, kEdge);
      for (std::size_t r = 0; r < std::min(kEdge, count - i); ++r) {
        T* sum = to(i + r) + j;
        for (std::size_t at = 0; at < kEdge; at += hn::Lanes(d))
          hn::StoreU(hn::Add(hn::LoadU(d, sum + at), hn::Load(d, rows + r * kEdge + at)), d, sum + at);
      }
    }
  }
}

}  // namespace attention_parts
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_ATTENTION_TILES_INL_H_
