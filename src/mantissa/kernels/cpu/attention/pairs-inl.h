// Products of attention by VDPBF16PS (kernels/cpu/gemm/pairs-inl.h): bf16 factors as pairs of terms (k, k +
// 2) and (k + 1, k + 3), and tile sums of them. A group is four terms, two words per row or column.
//
// Operands replace their f32 values in place. By rows, the words of a row lie at the row's start. By columns,
// words [2g, 2g + 2) replace rows [4g, 4g + 4), and each has the length of a row.
#if defined(MANTISSA_KERNELS_CPU_ATTENTION_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_ATTENTION_PAIRS_INL_H_
#undef MANTISSA_KERNELS_CPU_ATTENTION_PAIRS_INL_H_
#else
#define MANTISSA_KERNELS_CPU_ATTENTION_PAIRS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/kernels/cpu/attention/attention-inl.h"
#include "mantissa/kernels/cpu/gemm/pairs-inl.h"

#if HWY_TARGET == HWY_AVX3

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace attention_parts {

using bf16::BitsOf;
using bf16::Smallest;
using bf16::Word;
using pairs::kGroup;

/// Groups of a block of tile order.
inline constexpr std::size_t kTileGroups = kTileBlock / kGroup;

/// Writes the words of one row of `n` bf16 values; n is a multiple of 32 or 16. `to` may be `row`.
inline void PairRow(const float* row, std::size_t n, Word* to, Smallest& smallest) {
  const hn::ScalableTag<Word> d;
  const hn::Repartition<std::uint64_t, decltype(d)> d64;
  const hn::Half<decltype(d)> half;
  constexpr std::size_t kStep = HWY_LANES(float);
  const auto upper = hn::Set(d, 0xffff0000);
  for (std::size_t k = 0; k < n; k += kStep, to += kStep / 2) {
    const auto terms = BitsOf(row + k);
    // In each group of lanes 0 … 3: word 0 has terms 0 and 2, word 1 has terms 1 and 3.
    const auto words = hn::Or(hn::And(terms, upper), hn::ShiftRight<16>(hn::Shuffle1032(terms)));
    smallest.See(words);
    const auto together = hn::ConcatEven(d64, hn::BitCast(d64, words), hn::BitCast(d64, words));
    hn::StoreU(hn::LowerHalf(half, hn::BitCast(d, together)), half, to);
  }
}

/// Writes the words of the columns of `count` rows, `stride` apart and of as many bf16 values, a multiple of
/// the vector's lanes, as words by columns. `to` may be `from`. Rows up to a whole group must be readable.
inline void PairColumns(const float* from, std::size_t count, std::size_t stride, std::size_t n, Word* to,
                        Smallest& smallest) {
  const hn::ScalableTag<Word> d;
  const auto upper = hn::Set(d, 0xffff0000);
  for (std::size_t k = 0; k < count; k += kGroup, from += kGroup * stride, to += 2 * stride) {
    for (std::size_t j = 0; j < n; j += hn::Lanes(d)) {
      const auto term = [&](std::size_t i) HWY_ATTR { return BitsOf(from + i * stride + j); };
      const auto first = term(0), second = term(1), third = term(2), fourth = term(3);
      const auto even = hn::Or(hn::And(first, upper), hn::ShiftRight<16>(third));
      const auto odd = hn::Or(hn::And(second, upper), hn::ShiftRight<16>(fourth));
      smallest.See(even);
      smallest.See(odd);
      hn::StoreU(even, d, to + j);
      hn::StoreU(odd, d, to + stride + j);
    }
  }
}

/// C[kRows, kVectors] from groups [first, end) of the block: each element is a tile sum.
template <Left kLeft, std::size_t kRows, std::size_t kVectors>
__attribute__((target("avx512bf16"), noinline)) void PairSums(
    const Word* HWY_RESTRICT a, std::size_t a_stride, const Word* HWY_RESTRICT b, std::size_t b_stride,
    std::size_t first, std::size_t end, float* HWY_RESTRICT c, std::size_t c_stride, Into into) {
  HWY_ALIGN float apart[kRows * kVectors * 16];
  float* sums = into == Into::add ? apart : c;
  const std::size_t ld = into == Into::add ? kVectors * 16 : c_stride;
  bool from_zero = into != Into::extend;
  for (std::size_t g = first; g < end; from_zero = false) {
    const std::size_t stop = std::min(end, g / kTileGroups * kTileGroups + kTileGroups);
    __m512 chains[2][kRows][kVectors];
#pragma GCC unroll 2
    for (std::size_t odd = 0; odd < 2; ++odd) {
#pragma GCC unroll 8
      for (std::size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
        for (std::size_t j = 0; j < kVectors; ++j) chains[odd][i][j] = _mm512_setzero_ps();
      }
    }
    for (; g < stop; ++g) {
#pragma GCC unroll 2
      for (std::size_t odd = 0; odd < 2; ++odd) {
        const std::size_t k = 2 * g + odd;
        __m512i right[kVectors];
#pragma GCC unroll 2
        for (std::size_t j = 0; j < kVectors; ++j) right[j] = _mm512_loadu_si512(b + k * b_stride + 16 * j);
#pragma GCC unroll 8
        for (std::size_t i = 0; i < kRows; ++i) {
          const Word word = kLeft == Left::rows ? a[i * a_stride + k] : a[k * a_stride + i];
          const __m512i left = _mm512_set1_epi32(static_cast<int>(word));
#pragma GCC unroll 2
          for (std::size_t j = 0; j < kVectors; ++j)
            chains[odd][i][j] = _mm512_dpbf16_ps(chains[odd][i][j], (__m512bh)left, (__m512bh)right[j]);
        }
      }
    }
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
      for (std::size_t j = 0; j < kVectors; ++j) {
        float* to = sums + i * ld + 16 * j;
        const __m512 before = from_zero ? _mm512_setzero_ps() : _mm512_loadu_ps(to);
        _mm512_storeu_ps(to, _mm512_add_ps(before, _mm512_add_ps(chains[0][i][j], chains[1][i][j])));
      }
    }
  }
  if (into != Into::add) return;
  for (std::size_t i = 0; i < kRows; ++i) {
    for (std::size_t j = 0; j < kVectors * 16; j += 16) {
      float* to = c + i * c_stride + j;
      _mm512_storeu_ps(to, _mm512_add_ps(_mm512_loadu_ps(to), _mm512_loadu_ps(apart + i * ld + j)));
    }
  }
}

/// The same by fused multiply-adds for one row and one vector, of exactly the terms [first, first + depth).
template <Left kLeft>
HWY_NOINLINE void SlowPairSums(const Word* HWY_RESTRICT a, std::size_t a_stride, const Word* HWY_RESTRICT b,
                               std::size_t b_stride, std::size_t first, std::size_t depth,
                               float* HWY_RESTRICT c, Into into) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<Word> du;
  auto sum = into == Into::extend ? hn::LoadU(d, c) : hn::Zero(d);
  for (std::size_t k = first; k < first + depth;) {
    const std::size_t end = std::min(first + depth, k / kTileBlock * kTileBlock + kTileBlock);
    hn::Vec<decltype(d)> chains[2] = {hn::Zero(d), hn::Zero(d)};
    for (; k < end; ++k) {
      const std::size_t word = k / kGroup * 2 + k % 2;
      const bool high = k % kGroup < 2;
      const auto value = [&](hn::Vec<decltype(du)> w) HWY_ATTR {
        return hn::BitCast(d, high ? hn::And(w, hn::Set(du, 0xffff0000)) : hn::ShiftLeft<16>(w));
      };
      const auto left = value(hn::Set(du, kLeft == Left::rows ? a[word] : a[word * a_stride]));
      chains[k % 2] = hn::MulAdd(left, value(hn::LoadU(du, b + word * b_stride)), chains[k % 2]);
    }
    sum = hn::Add(sum, hn::Add(chains[0], chains[1]));
  }
  hn::StoreU(into == Into::add ? hn::Add(hn::LoadU(d, c), sum) : sum, d, c);
}

template <Left kLeft, std::size_t kVectors, std::size_t... kRow>
constexpr auto PairSumsTable(std::index_sequence<kRow...>) {
  return std::array{&PairSums<kLeft, kRow + 1, kVectors>...};
}

/// `TileProduct` of words. `fast`: by VDPBF16PS, in whole groups; masked terms must then be zeros.
template <Left kLeft>
void PairProduct(bool fast, std::size_t rows, const Word* a, std::size_t a_stride, const Word* b,
                 std::size_t b_stride, std::size_t columns, std::size_t first, std::size_t depth, float* c,
                 std::size_t c_stride, Into into) {
  static constexpr auto kTwo = PairSumsTable<kLeft, 2>(std::make_index_sequence<kTileRows>());
  static constexpr auto kOne = PairSumsTable<kLeft, 1>(std::make_index_sequence<kTileRows>());
  constexpr std::size_t kLanes = HWY_LANES(float);
  const std::size_t step = kLeft == Left::rows ? a_stride : 1;
  if (!fast) {
    for (std::size_t i = 0; i < rows; ++i) {
      for (std::size_t j = 0; j < columns; j += kLanes)
        SlowPairSums<kLeft>(a + i * step, a_stride, b + j, b_stride, first, depth, c + i * c_stride + j,
                            into);
    }
    return;
  }
  const std::size_t begin = first / kGroup, end = pairs::groups_of(first + depth);
  for (std::size_t shares = (rows + kTileRows - 1) / kTileRows; shares > 0; --shares) {
    const std::size_t share = (rows + shares - 1) / shares;
    for (std::size_t j = 0; j < columns; j += 2 * kLanes) {
      const auto& table = j + kLanes < columns ? kTwo : kOne;
      table[share - 1](a, a_stride, b + j, b_stride, begin, end, c + j, c_stride, into);
    }
    rows -= share;
    a += share * step;
    c += share * c_stride;
  }
}

}  // namespace attention_parts
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET == HWY_AVX3

#endif  // MANTISSA_KERNELS_CPU_ATTENTION_PAIRS_INL_H_
