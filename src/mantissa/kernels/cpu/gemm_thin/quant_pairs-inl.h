// Products of few rows with a matrix in quantized blocks that is rounded to bf16, by VDPBF16PS: sixteen
// columns are decoded, rounded and paired in registers, a group of four terms at a time.
//
// Two pairs of four terms of sixteen columns fill four vectors. Each holds the terms of a pair side by side,
// the later one first, for half of the columns: of every four, the first two or the last two. Converting both
// halves to bf16 makes a vector of pairs whose columns have the order kColumnOrder.
#if defined(MANTISSA_KERNELS_CPU_GEMM_THIN_QUANT_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_THIN_QUANT_PAIRS_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_THIN_QUANT_PAIRS_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_THIN_QUANT_PAIRS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "mantissa/kernels/cpu/gemm_thin/pairs-inl.h"
#include "mantissa/kernels/cpu/gemm_thin/quants-inl.h"
#include "mantissa/kernels/cpu/inline_across_targets.h"

#if HWY_TARGET == HWY_AVX3

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace pairs {

/// The biased exponent of the smallest value of a block that is not zero: scales and minima are multiples of
/// 2^-24, the smallest number of f16, and codes are integers.
inline constexpr std::uint32_t kLeastOfBlocks = 127 - 24;

/// The lane of every column, and the column of every lane.
alignas(64) inline constexpr std::int32_t kLanesOfColumns[] = {0, 1, 8,  9,  2, 3, 10, 11,
                                                               4, 5, 12, 13, 6, 7, 14, 15};
alignas(64) inline constexpr std::int32_t kColumnOrder[] = {0, 1, 4, 5, 8,  9,  12, 13,
                                                            2, 3, 6, 7, 10, 11, 14, 15};

/// Packs `depth` terms of one row, whole blocks, as a panel of one row.
HWY_NOINLINE void PackRow(const PackSource& from, std::size_t row, std::size_t k, std::size_t depth,
                          std::uint16_t* HWY_RESTRICT to) {
  const hn::ScalableTag<Word> d;
  const hn::ScalableTag<std::uint16_t> d16;
  HWY_ALIGN std::uint16_t staged[static_cast<std::size_t>(kSumBlock) + 2 * HWY_LANES(float)];
  const std::uint16_t* terms = BfloatRow(from, row, k, depth, staged);
  Smallest smallest;
  for (std::size_t i = 0; i < depth; i += kQuantBlock) {
    const auto v = hn::BitCast(d, hn::LoadU(d16, terms + i));
    smallest.See(v);
    // The terms of a group, from low to high: 2, 0, 3, 1.
    const __m512i low = _mm512_shufflelo_epi16(v.raw, _MM_SHUFFLE(1, 3, 0, 2));
    _mm512_storeu_si512(to + kHead + i, _mm512_shufflehi_epi16(low, _MM_SHUFFLE(1, 3, 0, 2)));
  }
  smallest.StoreExponent(to);
}

/// Decodes one block of sixteen columns.
template <QuantFormat F>
class QuantPairs {
 public:
  /// Of the words with the scales, which are in the `upper` halves or the lower ones, and of those with the
  /// fifth bits.
  __attribute__((target("avx512bf16"), always_inline))
  QuantPairs(const std::uint32_t* heads, bool upper, const std::uint32_t* fifths) {
    __m512i head = _mm512_loadu_si512(heads);
    if (upper) head = _mm512_srli_epi32(head, 16);
    const __m512 scale = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(head));
    scale_[0] = _mm512_permute_ps(scale, kFirstTwo);
    scale_[1] = _mm512_permute_ps(scale, kLastTwo);
    if constexpr (kTraits.minimum) {
      const __m512 minimum = _mm512_cvtph_ps(_mm512_cvtepi32_epi16(_mm512_srli_epi32(head, 16)));
      add_[0] = _mm512_permute_ps(minimum, kFirstTwo);
      add_[1] = _mm512_permute_ps(minimum, kLastTwo);
    } else if constexpr (kTraits.code_bits == 8) {
      for (int half = 0; half < 2; ++half) add_[half] = _mm512_mul_ps(scale_[half], _mm512_set1_ps(-kShift));
    }
    if constexpr (kTraits.code_bits == 5) {
      const __m512i fifth = _mm512_loadu_si512(fifths);
      fifth_[0] = _mm512_shuffle_epi32(fifth, static_cast<_MM_PERM_ENUM>(kFirstTwo));
      fifth_[1] = _mm512_shuffle_epi32(fifth, static_cast<_MM_PERM_ENUM>(kLastTwo));
    }
  }

  /// Returns the pairs of terms (4 group, 4 group + 2), or, if kOdd, (4 group + 1, 4 group + 3), the first in
  /// the high half. `words` has the codes of these terms: 8 bits each, or the low four of each byte.
  template <bool kOdd>
  __attribute__((target("avx512bf16"), always_inline)) __m512i Pairs(__m512i words, int group) const {
    return (__m512i)_mm512_cvtne2ps_pbh(Values<kOdd, 1>(words, group), Values<kOdd, 0>(words, group));
  }

 private:
  static constexpr QuantTraits kTraits = traits(F);
  /// Lanes (0, 0, 1, 1) and (2, 2, 3, 3) of every four.
  static constexpr int kFirstTwo = 0x50, kLastTwo = 0xfa;

  /// The terms of half of the columns.
  template <bool kOdd, int kHalf>
  __attribute__((target("avx512bf16"), always_inline)) __m512 Values(__m512i words, int group) const {
    // The byte of each lane's code among the four columns: the later term of a column, then the earlier one.
    constexpr int kFirst = 8 * kHalf + kOdd;
    if constexpr (kTraits.code_bits == 8) {
      constexpr __mmask64 kSecondBytes = 0x2222222222222222;
      const __m512i from =
          _mm512_set4_epi32((kFirst + 4) << 8, (kFirst + 6) << 8, kFirst << 8, (kFirst + 2) << 8);
      const __m512 code = _mm512_castsi512_ps(_mm512_mask_shuffle_epi8(
          _mm512_set1_epi32(static_cast<int>(kShiftBits)), kSecondBytes, words, from));
      return _mm512_fmadd_ps(code, scale_[kHalf], add_[kHalf]);
    }
    // The look-up reads only as many bits of an index as the table has.
    __m512i index = _mm512_shuffle_epi8(words, _mm512_set4_epi32(kFirst + 4, kFirst + 6, kFirst, kFirst + 2));
    __m512 code;
    if constexpr (kTraits.code_bits == 5) {
      // The bit of each lane's term becomes the fifth of the index.
      const int bit = 4 * group + kOdd + 28;
      const __m512i by = _mm512_set4_epi32(bit % 32, (bit + 2) % 32, bit % 32, (bit + 2) % 32);
      index =
          _mm512_ternarylogic_epi32(_mm512_set1_epi32(15), index, _mm512_rorv_epi32(fifth_[kHalf], by), 0xca);
      code = _mm512_permutex2var_ps(_mm512_load_ps(kCodes<F>), index, _mm512_load_ps(kCodes<F> + 16));
    } else {
      code = _mm512_permutexvar_ps(index, _mm512_load_ps(kCodes<F>));
    }
    if constexpr (kTraits.minimum) return _mm512_fmadd_ps(code, scale_[kHalf], add_[kHalf]);
    return _mm512_mul_ps(code, scale_[kHalf]);
  }

  __m512 scale_[2], add_[2];
  __m512i fifth_[2];
};

/// The codes of blocks of sixteen columns: interleaved, or in rows.
template <QuantFormat F, bool kInterleavedColumns>
class QuantSource {
 public:
  QuantSource(const PackSource& b, std::size_t column, std::size_t k, std::size_t depth)
      : heads_([&] {
          if constexpr (kInterleavedColumns) {
            return InterleavedQuants<F, 1>(b, column, k);
          } else {
            return QuantHeads<F, kThinLanes>(b.At(column, k), b.run_bytes, depth / kQuantBlock);
          }
        }()),
        blocks_(b.At(column, k)),
        stride_(b.run_bytes) {}

  static constexpr std::size_t kWords = interleaved_code_words(F);
  static constexpr std::size_t kBytes = kThinLanes * traits(F).bytes;

  __attribute__((target("avx512bf16"), always_inline)) QuantPairs<F> Decoder(std::size_t block) const {
    return QuantPairs<F>(heads_.Heads(block, 0), heads_.Upper(block), heads_.Fifths(block, 0));
  }
  MANTISSA_INLINE_ACROSS_TARGETS void Read(std::size_t block, __m512i (&words)[kWords]) const {
    HWY_UNROLL(8)
    for (std::size_t w = 0; w < kWords; w += 4) {
      if constexpr (kInterleavedColumns) {
        HWY_UNROLL(4)
        for (std::size_t i = 0; i < 4; ++i) words[w + i] = _mm512_loadu_si512(heads_.Codes(block, 0, w + i));
      } else {
        const hn::ScalableTag<Word> d;
        const std::uint8_t* codes = blocks_ + block * traits(F).bytes + traits(F).codes + 4 * w;
        TransposePieces(
            d, [&](std::size_t c) { return reinterpret_cast<const Word*>(codes + c * stride_); }, 0,
            [&](std::size_t i, hn::Vec<decltype(d)> v) HWY_ATTR { words[w + i] = v.raw; });
      }
    }
  }

 private:
  std::conditional_t<kInterleavedColumns, InterleavedQuants<F, 1>, QuantHeads<F, kThinLanes>> heads_;
  const std::uint8_t* blocks_;
  std::size_t stride_;
};

/// Returns the word with the codes of group `group` in the places that QuantPairs reads.
template <QuantFormat F>
__attribute__((target("avx512bf16"), always_inline)) inline __m512i WordOf(
    const __m512i (&words)[interleaved_code_words(F)], std::size_t group) {
  constexpr std::size_t kWords = interleaved_code_words(F);
  return group < kWords ? words[group] : _mm512_srli_epi32(words[group - kWords], 4);
}

/// out[kRows, 16 columns] += the products of whole blocks, or = +0 + these. `a` is [groups][2][strip].
template <QuantFormat F, bool kInterleavedColumns, std::size_t kRows>
__attribute__((target("avx512bf16"), noinline)) void MultiplyQuantRows(
    const PackSource& b, std::size_t column, std::size_t k, std::size_t depth, const Word* HWY_RESTRICT a,
    std::size_t strip, StreamAhead ahead, float* HWY_RESTRICT out, std::size_t ld, TileStore store) {
  using Source = QuantSource<F, kInterleavedColumns>;
  const Source source(b, column, k, depth);
  const __m512i column_order = _mm512_load_si512(kColumnOrder);
  __m512 sums[kRows];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kRows; ++i)
    sums[i] = store == TileStore::add ? _mm512_permutexvar_ps(column_order, _mm512_loadu_ps(out + i * ld))
                                      : _mm512_setzero_ps();
  for (std::size_t block = 0; block < depth / kQuantBlock; ++block) {
    ahead.Ask<Source::kBytes>();
    __m512i words[Source::kWords];
    source.Read(block, words);
    if constexpr (traits(F).code_bits == 8) {
#pragma GCC unroll 8
      for (__m512i& word : words)
        word = _mm512_xor_si512(word, _mm512_set1_epi32(static_cast<int>(kShiftBytes)));
    }
    const QuantPairs<F> decoder = source.Decoder(block);
    __m512 even[kRows], odd[kRows];
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kRows; ++i) even[i] = odd[i] = _mm512_setzero_ps();
#pragma GCC unroll 8
    for (std::size_t g = 0; g < kQuantBlock / kGroup; ++g, a += 2 * strip) {
      const __m512i word = WordOf<F>(words, g);
      const __m512i first = decoder.template Pairs<false>(word, static_cast<int>(g));
      const __m512i second = decoder.template Pairs<true>(word, static_cast<int>(g));
#pragma GCC unroll 8
      for (std::size_t i = 0; i < kRows; ++i) {
        const __m512i left = _mm512_set1_epi32(static_cast<int>(a[i]));
        const __m512i right = _mm512_set1_epi32(static_cast<int>(a[strip + i]));
        even[i] = _mm512_dpbf16_ps(even[i], (__m512bh)left, (__m512bh)first);
        odd[i] = _mm512_dpbf16_ps(odd[i], (__m512bh)right, (__m512bh)second);
      }
    }
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kRows; ++i) sums[i] = _mm512_add_ps(sums[i], _mm512_add_ps(even[i], odd[i]));
  }
  const __m512i lanes = _mm512_load_si512(kLanesOfColumns);
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kRows; ++i)
    _mm512_storeu_ps(out + i * ld, _mm512_permutexvar_ps(lanes, sums[i]));
}

/// The same by fused multiply-adds, for factors that VDPBF16PS would take as zero.
template <QuantFormat F, bool kInterleavedColumns>
__attribute__((target("avx512bf16"), noinline)) void MultiplyQuantRowsSlowly(
    const PackSource& b, std::size_t column, std::size_t k, std::size_t depth, const Word* a,
    std::size_t rows, float* out, std::size_t ld, TileStore store) {
  constexpr std::size_t kGroups = kQuantBlock / kGroup;
  using Source = QuantSource<F, kInterleavedColumns>;
  const Source source(b, column, k, depth);
  const __m512i lanes = _mm512_load_si512(kLanesOfColumns);
  HWY_ALIGN Word pairs[2 * kGroups * kThinLanes];
  for (std::size_t block = 0; block < depth / kQuantBlock; ++block, a += 2 * kGroups * rows) {
    __m512i words[Source::kWords];
    source.Read(block, words);
    if constexpr (traits(F).code_bits == 8) {
      for (__m512i& word : words)
        word = _mm512_xor_si512(word, _mm512_set1_epi32(static_cast<int>(kShiftBytes)));
    }
    const QuantPairs<F> decoder = source.Decoder(block);
    for (std::size_t g = 0; g < kGroups; ++g) {
      const __m512i word = WordOf<F>(words, g);
      const __m512i first = decoder.template Pairs<false>(word, static_cast<int>(g));
      const __m512i second = decoder.template Pairs<true>(word, static_cast<int>(g));
      _mm512_store_si512(pairs + 2 * g * kThinLanes, _mm512_permutexvar_epi32(lanes, first));
      _mm512_store_si512(pairs + (2 * g + 1) * kThinLanes, _mm512_permutexvar_epi32(lanes, second));
    }
    for (std::size_t i = 0; i < rows; ++i)
      SlowThinPairs(kGroups, a + i, rows, pairs, out + i * ld, block == 0 ? store : TileStore::add);
  }
}

/// Computes out[i * ld + c] = the sum of row i and column c, or adds it to the previous value, for a strip of
/// 1, 4 or 8 rows, the first `used` of which are needed. `a` is its panel (gemm_pairs-inl.h); IsThinQuant is
/// true of `b`, whose format interleaves().
template <bool kInterleavedColumns>
void MultiplyQuants(const PackSource& b, std::size_t column, std::size_t k, std::size_t depth,
                    const std::uint16_t* a, std::size_t rows, std::size_t used, StreamAhead ahead, float* out,
                    std::size_t ld, TileStore store) {
  const bool fast = NeverSubnormal(ExponentAt(a), kLeastOfBlocks);
  GuardTask::add(fast);
  const Word* left = reinterpret_cast<const Word*>(a + rows * kHead);
  mantissa::HWY_NAMESPACE::WithFormat(b.quants.format, [&](auto f) HWY_ATTR {
    if constexpr (interleaves(f())) {
      constexpr QuantFormat F = f();
      if (!fast)
        return MultiplyQuantRowsSlowly<F, kInterleavedColumns>(b, column, k, depth, left, rows, out, ld,
                                                               store);
      const auto multiply = used == 1   ? MultiplyQuantRows<F, kInterleavedColumns, 1>
                            : rows == 4 ? MultiplyQuantRows<F, kInterleavedColumns, 4>
                                        : MultiplyQuantRows<F, kInterleavedColumns, 8>;
      multiply(b, column, k, depth, left, rows, ahead, out, ld, store);
    }
  });
}

}  // namespace pairs
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET == HWY_AVX3

#endif  // MANTISSA_KERNELS_CPU_GEMM_THIN_QUANT_PAIRS_INL_H_
