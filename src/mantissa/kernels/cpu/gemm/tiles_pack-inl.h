// Packs bf16 operands for tile registers (cpu/amx_tiles.h): panels of 32 sides and blocks of 32 terms.
//
// A panel is one line, its head, which holds the smallest exponent (cpu/gemm_bf16-inl.h), and then for each
// block two tiles, of sides 0 to 15 and of sides 16 to 31. Rows of A that lie in the source as they lie in
// tiles are not copied: the head then holds their place, and the rest of the panel is not touched. A tile is
// 16 rows of 16 words, each a pair of terms 2p and 2p + 1, the first in the low half: [side][p] in a panel of
// A, [p][side] in a panel of B. Sides and terms that are missing are zero.
#if defined(MANTISSA_KERNELS_CPU_GEMM_TILES_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_TILES_PACK_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_TILES_PACK_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_TILES_PACK_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/kernels/cpu/gemm/bf16-inl.h"
#include "mantissa/kernels/cpu/gemm/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace tiles {
namespace hn = hwy::HWY_NAMESPACE;
using bf16::BfloatRow;
using bf16::LiesAsBfloat;
using bf16::Smallest;
using bf16::Word;

/// Rows and words per row of a tile; sides of a panel; the words of a tile, of a block and of the head.
inline constexpr std::size_t kEdge = 16, kSides = 2 * kEdge;
inline constexpr std::size_t kTileWords = kEdge * kEdge, kBlockWords = 2 * kTileWords, kHeadWords = kEdge;
/// The most terms that are packed and multiplied at once. With its head, a panel of them takes no more memory
/// than kSumBlock terms of f32.
inline constexpr std::size_t kLongest = 2 * kSumBlock - kTileBlock;

constexpr std::size_t blocks_of(std::size_t depth) {
  return (depth + kTileBlock - 1) / kTileBlock;
}
/// The terms, of two bytes, whose place a side takes in a packed panel.
constexpr std::size_t packed_depth(std::size_t depth) {
  return 1 + blocks_of(depth) * kTileBlock;
}

/// Where the tiles of an operand lie, each of 16 sides and 32 terms: in a packed panel, or in the source
/// itself. A tile has 16 rows: of A, those of its sides; of B, those of pairs of terms. In bytes.
struct TilePlaces {
  const std::uint8_t* first;
  std::size_t row;    // from a row of a tile to the next one
  std::size_t half;   // from a tile to that of the next 16 sides
  std::size_t block;  // from 32 terms to the next ones

  /// The words of side `i` of A.
  const std::uint8_t* at(std::size_t i) const { return first + i / kEdge * half + i % kEdge * row; }
  /// The tiles from a side, a multiple of 16, and a block of terms on.
  TilePlaces From(std::size_t side, std::size_t terms = 0) const {
    return {first + side / kEdge * half + terms * block, row, half, block};
  }
};

/// The head of a panel.
struct PanelHead {
  std::uint32_t exponent;  // as bf16::ExponentAt reads it
  TilePlaces source;       // first == nullptr: the tiles follow the head
};
static_assert(offsetof(PanelHead, exponent) == 0 && sizeof(PanelHead) <= kHeadWords * sizeof(Word));

/// Returns the places of the tiles of a panel of A.
inline TilePlaces tiles_of_panel(const std::uint16_t* panel) {
  PanelHead head;
  std::memcpy(&head, panel, sizeof head);
  if (head.source.first != nullptr) return head.source;
  constexpr std::size_t kWord = sizeof(Word);
  const auto* words = reinterpret_cast<const Word*>(panel) + kHeadWords;
  return {reinterpret_cast<const std::uint8_t*>(words), kEdge * kWord, kTileWords * kWord,
          kBlockWords * kWord};
}

/// Returns the places of the tiles of the rows from `side` on in a source of bf16 values whose depth is
/// contiguous.
inline TilePlaces tiles_of_source(const PackSource& from, std::size_t side, std::size_t first_depth) {
  return {from.At(side, first_depth), from.run_bytes, kEdge * from.run_bytes,
          kTileBlock * sizeof(std::uint16_t)};
}

/// Writes 16 rows of 16 words, row(i), to a tile.
template <class RowAt>
HWY_INLINE void CopyTile(const RowAt& row, Word* HWY_RESTRICT tile, Smallest& smallest) {
  const hn::ScalableTag<Word> d;
  for (std::size_t i = 0; i < kEdge; ++i) {
    for (std::size_t p = 0; p < kEdge; p += HWY_LANES(Word)) {
      const auto words = hn::LoadU(d, row(i) + p);
      smallest.See(words);
      hn::StoreU(words, d, tile + i * kEdge + p);
    }
  }
}

/// Writes them to the columns of a tile.
template <class RowAt>
HWY_INLINE void TransposeTile(const RowAt& row, Word* HWY_RESTRICT tile, Smallest& smallest) {
  const hn::ScalableTag<Word> d;
  constexpr std::size_t kPiece = 16 / sizeof(Word);
  for (std::size_t i = 0; i < kEdge; i += HWY_LANES(Word)) {
    for (std::size_t p = 0; p < kEdge; p += kPiece) {
      TransposePieces(
          d, [&](std::size_t r) { return row(i + r) + p; }, p,
          [&](std::size_t at, hn::Vec<decltype(d)> words) HWY_ATTR {
            smallest.See(words);
            hn::StoreU(words, d, tile + at * kEdge + i);
          });
    }
  }
}

/// Packs the tiles of sides [side, side + 16) of a source whose depth is contiguous. Sides from `last` on are
/// zero.
inline void PackAcross(const PackSource& from, bool transpose, std::size_t side, std::size_t last,
                       std::size_t first_depth, std::size_t depth, Word* HWY_RESTRICT to,
                       Smallest& smallest) {
  constexpr std::size_t kRow = kLongest + kTileBlock;
  HWY_ALIGN std::uint16_t staged[kEdge * kRow];
  HWY_ALIGN static constexpr std::uint16_t kZeros[kLongest] = {};
  HWY_ALIGN std::uint16_t rest[kEdge * kTileBlock] = {};
  const std::uint16_t* rows[kEdge];
  for (std::size_t i = 0; i < kEdge; ++i)
    rows[i] = side + i < last ? BfloatRow(from, side + i, first_depth, depth, staged + i * kRow) : kZeros;
  for (std::size_t k = 0; k < depth; k += kTileBlock, to += kBlockWords) {
    const bool whole = k + kTileBlock <= depth;
    for (std::size_t i = 0; !whole && i < kEdge; ++i)
      std::copy_n(rows[i] + k, depth - k, rest + i * kTileBlock);
    const auto row = [&](std::size_t i) {
      return reinterpret_cast<const Word*>(whole ? rows[i] + k : rest + i * kTileBlock);
    };
    transpose ? TransposeTile(row, to, smallest) : CopyTile(row, to, smallest);
  }
}

/// Joins two terms of 32 sides into words. Calls put(place, words) with the places in the same row of two
/// tiles, one after the other.
template <class Put>
HWY_INLINE void JoinTerms(const std::uint16_t* HWY_RESTRICT even, const std::uint16_t* HWY_RESTRICT odd,
                          const Put& put) {
  const hn::ScalableTag<Word> d;
  const hn::Rebind<std::uint16_t, decltype(d)> half;
  for (std::size_t at = 0; at < kSides; at += HWY_LANES(Word)) {
    const auto low = hn::PromoteTo(d, hn::LoadU(half, even + at)),
               high = hn::PromoteTo(d, hn::LoadU(half, odd + at));
    put(at / kEdge * kTileWords + at % kEdge, hn::Or(low, hn::ShiftLeft<16>(high)));
  }
}

/// Packs sides [side, side + sides), sides ≤ 32, of a source whose sides are contiguous.
inline void PackAlong(const PackSource& from, bool transpose, std::size_t side, std::size_t sides,
                      std::size_t first_depth, std::size_t depth, Word* HWY_RESTRICT to, Smallest& smallest) {
  HWY_ALIGN static constexpr std::uint16_t kZeros[kSides] = {};
  HWY_ALIGN std::uint16_t staged[2][2 * kSides];  // a conversion may write beyond `sides`
  HWY_ALIGN Word joined[kBlockWords];             // tiles of B
  const hn::ScalableTag<Word> d;
  using Words = hn::Vec<decltype(d)>;
  const auto term = [&](std::size_t k, std::uint16_t* buffer) -> const std::uint16_t* {
    if (k >= depth) return kZeros;
    const std::uint16_t* row = BfloatRow(from, first_depth + k, side, sides, buffer);
    if (sides == kSides) return row;
    if (row != buffer) std::copy_n(row, sides, buffer);
    std::fill(buffer + sides, buffer + kSides, std::uint16_t{0});
    return buffer;
  };
  for (std::size_t k = 0; k < depth; k += kTileBlock, to += kBlockWords) {
    for (std::size_t p = 0; p < kEdge; ++p) {
      const std::uint16_t *even = term(k + 2 * p, staged[0]), *odd = term(k + 2 * p + 1, staged[1]);
      if (transpose) {
        Word* row = joined + p * kEdge;
        JoinTerms(even, odd, [&](std::size_t at, Words words) HWY_ATTR { hn::Store(words, d, row + at); });
        continue;
      }
      JoinTerms(even, odd, [&](std::size_t at, Words words) HWY_ATTR {
        smallest.See(words);
        hn::StoreU(words, d, to + p * kEdge + at);
      });
    }
    for (std::size_t at = 0; transpose && at < kBlockWords; at += kTileWords)
      TransposeTile([&](std::size_t p) { return joined + at + p * kEdge; }, to + at, smallest);
  }
}

/// Calls put(i, vector) with terms [0, lanes) of sides i = 0 … 7. row(t) points to the 8 sides of term t.
template <class RowAt, class Put>
HWY_INLINE void TransposeTerms(const RowAt& row, const Put& put) {
  const hn::ScalableTag<std::uint16_t> d;
  const hn::ScalableTag<std::uint32_t> d2;
  const hn::ScalableTag<std::uint64_t> d4;
  using Vec = hn::Vec<decltype(d)>;
  const auto two = [&](std::size_t t, auto&& use) HWY_ATTR {
    const Vec a = LoadPieces(d, row, t), b = LoadPieces(d, row, t + 1);
    use(hn::BitCast(d2, hn::InterleaveLower(d, a, b)), hn::BitCast(d2, hn::InterleaveUpper(d, a, b)));
  };
  const auto four = [&](std::size_t t, auto&& use) HWY_ATTR {
    two(t, [&](auto low, auto high) HWY_ATTR {
      two(t + 2, [&](auto next_low, auto next_high) HWY_ATTR {
        use(hn::BitCast(d4, hn::InterleaveLower(d2, low, next_low)),
            hn::BitCast(d4, hn::InterleaveUpper(d2, low, next_low)),
            hn::BitCast(d4, hn::InterleaveLower(d2, high, next_high)),
            hn::BitCast(d4, hn::InterleaveUpper(d2, high, next_high)));
      });
    });
  };
  four(0, [&](auto a0, auto a1, auto a2, auto a3) HWY_ATTR {
    four(4, [&](auto b0, auto b1, auto b2, auto b3) HWY_ATTR {
      const auto both = [&](std::size_t i, auto a, auto b) HWY_ATTR {
        put(i, hn::BitCast(d, hn::InterleaveLower(d4, a, b)));
        put(i + 1, hn::BitCast(d, hn::InterleaveUpper(d4, a, b)));
      };
      both(0, a0, b0);
      both(2, a1, b1);
      both(4, a2, b2);
      both(6, a3, b3);
    });
  });
}

/// As PackAlong for a whole panel of A and whole blocks.
HWY_NOINLINE inline void TransposeAlong(const PackSource& from, std::size_t side, std::size_t first_depth,
                                        std::size_t blocks, Word* HWY_RESTRICT to, Smallest& smallest) {
  const hn::ScalableTag<std::uint16_t> d;
  const hn::ScalableTag<Word> words;
  constexpr std::size_t kLanes = HWY_LANES(std::uint16_t), kPiece = 8;
  HWY_ALIGN std::uint16_t staged[kTileBlock * kSides];
  const bool in_place = LiesAsBfloat(from);
  const std::size_t stride = in_place ? from.ld : kSides;
  Smallest seen;
  for (std::size_t block = 0; block < blocks; ++block, first_depth += kTileBlock, to += kBlockWords) {
    const std::uint16_t* rows = BfloatRow(from, first_depth, side, kSides, staged);
    for (std::size_t k = 1; !in_place && k < kTileBlock; ++k)
      BfloatRow(from, first_depth + k, side, kSides, staged + k * kSides);
    for (std::size_t at = 0; at < kSides; at += kPiece) {
      auto* tile = reinterpret_cast<std::uint16_t*>(to + at * kEdge);
      for (std::size_t term = 0; term < kTileBlock; term += kLanes) {
        TransposeTerms([&](std::size_t t) { return rows + (term + t) * stride + at; },
                       [&](std::size_t i, hn::Vec<decltype(d)> terms) HWY_ATTR {
                         seen.See(hn::BitCast(words, terms));
                         hn::StoreU(terms, d, tile + i * kTileBlock + term);
                       });
      }
    }
  }
  smallest = seen;
}

/// The most panels of B that JoinAlong fills at a time.
inline constexpr std::size_t kMostJoined = 16;

/// As PackAlong for `panels` ≤ kMostJoined whole panels of B, `panel_words` words apart, with their heads,
/// and whole blocks. Reads the rows of terms one after the other.
HWY_NOINLINE inline void JoinAlong(const PackSource& from, std::size_t side, std::size_t first_depth,
                                   std::size_t panels, std::size_t panel_words, std::size_t blocks,
                                   Word* HWY_RESTRICT to) {
  constexpr std::size_t kMostSides = kMostJoined * kSides, kLine = kEdge * sizeof(Word);
  const hn::ScalableTag<Word> d;
  HWY_ALIGN std::uint16_t staged[2][kMostSides];
  Smallest smallest[kMostJoined];
  const std::size_t bytes = from.Bytes(panels * kSides);
  for (std::size_t p = 0; p < blocks * kEdge; ++p) {
    const std::size_t term = first_depth + 2 * p;
    if (2 * p + kRowsAhead + 1 < blocks * kTileBlock) {
      for (std::size_t at = 0; at < bytes; at += kLine) {
        hwy::Prefetch(from.At(term + kRowsAhead, side) + at);
        hwy::Prefetch(from.At(term + kRowsAhead + 1, side) + at);
      }
    }
    const std::uint16_t *even = BfloatRow(from, term, side, panels * kSides, staged[0]),
                        *odd = BfloatRow(from, term + 1, side, panels * kSides, staged[1]);
    Word* row = to + kHeadWords + p / kEdge * kBlockWords + p % kEdge * kEdge;
    for (std::size_t i = 0; i < panels; ++i, even += kSides, odd += kSides, row += panel_words) {
      Smallest seen = smallest[i];
      JoinTerms(even, odd, [&](std::size_t at, hn::Vec<decltype(d)> words) HWY_ATTR {
        seen.See(words);
        hn::StoreU(words, d, row + at);
      });
      smallest[i] = seen;
    }
  }
  for (std::size_t i = 0; i < panels; ++i) {
    const PanelHead head{smallest[i].Exponent(), {}};
    std::memcpy(to + i * panel_words, &head, sizeof head);
  }
}

/// Packs sides [first, first + sides) and `depth` ≤ kLongest terms into ⌈sides / 32⌉ panels of A, or of B.
HWY_NOINLINE inline void Pack(const PackSource& from, bool of_b, std::size_t first, std::size_t sides,
                              std::size_t first_depth, std::size_t depth, std::uint16_t* to) {
  const std::size_t words_of_panel = kSides / 2 * packed_depth(depth), blocks = blocks_of(depth);
  const std::size_t whole = !from.depth_contiguous && depth % kTileBlock == 0 ? sides / kSides : 0;
  std::size_t panel = 0;
  while (of_b && panel < whole) {
    const std::size_t count = std::min(kMostJoined, whole - panel);
    JoinAlong(from, first + panel * kSides, first_depth, count, words_of_panel, blocks,
              reinterpret_cast<Word*>(to) + panel * words_of_panel);
    panel += count;
  }
  to += 2 * panel * words_of_panel;
  for (std::size_t i = panel * kSides; i < sides; i += kSides, to += 2 * words_of_panel) {
    Word* words = reinterpret_cast<Word*>(to) + kHeadWords;
    Smallest smallest;
    if (i < whole * kSides) {
      TransposeAlong(from, first + i, first_depth, blocks, words, smallest);
    } else if (from.depth_contiguous) {
      for (std::size_t half = 0; half < 2; ++half) {
        PackAcross(from, of_b, first + i + half * kEdge, first + sides, first_depth, depth,
                   words + half * kTileWords, smallest);
      }
    } else {
      PackAlong(from, !of_b, first + i, std::min(kSides, sides - i), first_depth, depth, words, smallest);
    }
    const PanelHead head{smallest.Exponent(), {}};
    std::memcpy(to, &head, sizeof head);
  }
}

/// True if the tiles of rows [side, side + sides) of A, sides ≤ 32, can be loaded from the source: whole
/// tiles, whose rows are lines. The tiles of a panel are loaded again for every panel of B, so they should
/// stay in the first-level cache (of 64 sets of 12 lines, with AMX). Rows a multiple of 2048 bytes apart
/// share so few of its sets that 32 rows evict each other; a copy of them is loaded faster.
inline bool LiesRight(const PackSource& from, std::size_t side, std::size_t sides, std::size_t first_depth,
                      std::size_t depth) {
  constexpr std::size_t kLine = kEdge * sizeof(Word), kCollision = 2048;
  if (!from.depth_contiguous || from.type != Scalar::bf16 || !Unrounded(from)) return false;
  return sides % kEdge == 0 && depth % kTileBlock == 0 && from.run_bytes % kLine == 0 &&
         from.run_bytes % kCollision != 0 &&
         reinterpret_cast<std::uintptr_t>(from.At(side, first_depth)) % kLine == 0;
}

/// Returns the biased exponent of the smallest of the factors of such rows that is not zero.
HWY_NOINLINE inline std::uint32_t ExponentInPlace(const TilePlaces& rows, std::size_t sides,
                                                  std::size_t depth) {
  const hn::ScalableTag<Word> d;
  Smallest smallest;
  for (std::size_t i = 0; i < sides; ++i) {
    const Word* row = reinterpret_cast<const Word*>(rows.at(i));
    for (std::size_t p = 0; p < depth / 2; p += HWY_LANES(Word)) smallest.See(hn::LoadU(d, row + p));
  }
  return smallest.Exponent();
}

/// As Pack for panels of A, but leaves the rows that lie right in their place.
inline void PackOrRefer(const PackSource& from, std::size_t first, std::size_t sides, std::size_t first_depth,
                        std::size_t depth, std::uint16_t* to) {
  for (std::size_t i = 0; i < sides; i += kSides, to += kSides * packed_depth(depth)) {
    const std::size_t side = first + i, count = std::min(kSides, sides - i);
    if (!LiesRight(from, side, count, first_depth, depth)) {
      Pack(from, false, side, count, first_depth, depth, to);
      continue;
    }
    const TilePlaces rows = tiles_of_source(from, side, first_depth);
    const PanelHead head{ExponentInPlace(rows, count, depth), rows};
    std::memcpy(to, &head, sizeof head);
  }
}

}  // namespace tiles
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_TILES_PACK_INL_H_
