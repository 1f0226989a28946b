// Products of few rows with a matrix of bf16 values whose columns are contiguous along the depth, by
// VDPBF16PS (kernels/cpu/gemm/pairs-inl.h). The matrix is transposed into pairs in registers, a block of 32
// terms at a time, and never packed.
#if defined(MANTISSA_KERNELS_CPU_GEMM_THIN_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_THIN_PAIRS_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_THIN_PAIRS_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_THIN_PAIRS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/kernels/cpu/gemm/pairs-inl.h"
#include "mantissa/kernels/cpu/gemm_thin/thin-inl.h"
#include "mantissa/kernels/guard_count.h"

#if HWY_TARGET == HWY_AVX3

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace pairs {

/// Columns that are multiplied at a time, rows whose sums fit the registers, and words of a block's column.
inline constexpr std::size_t kThinLanes = 16, kThinAtOnce = 8, kThinWords = kTileBlock / 2;

/// The words of `groups` ≤ kTileBlock / kGroup groups of 16 columns, and their smallest magnitude.
class ThinWords {
 public:
  HWY_INLINE ThinWords() : smallest_() {}  // compiled for the target, which a defaulted one is not
  /// Reads the columns from `at` on, an even number of groups.
  HWY_INLINE void Read(SideBySide<std::uint16_t>& at, std::size_t groups) {
    const hn::ScalableTag<Word> d;
    for (std::size_t g = 0; g < groups; g += 2, at.Advance(2 * kGroup)) {
      hn::Vec<decltype(d)> terms[4];
      TransposePieces(
          d, [&](std::size_t c) { return reinterpret_cast<const Word*>(at(c)); }, 0,
          [&](std::size_t i, hn::Vec<decltype(d)> v) HWY_ATTR { terms[i] = v; });
      for (std::size_t i = 0; i < 4; ++i) smallest_.See(terms[i]);
      for (std::size_t i = 0; i < 2; ++i) {
        const Group group(terms[2 * i], terms[2 * i + 1]);
        hn::Store(group.even, d, words_ + 2 * (g + i) * kThinLanes);
        hn::Store(group.odd, d, words_ + (2 * (g + i) + 1) * kThinLanes);
      }
    }
  }
  const Word* get() const { return words_; }
  HWY_INLINE bool Below(std::uint32_t exponent) const { return smallest_.Below(exponent); }

 private:
  HWY_ALIGN Word words_[kThinWords * kThinLanes];
  Smallest smallest_;
};

/// out[kRows, 16 columns] += the block of `groups` groups, or = +0 + the block. `a` is [groups][2][strip].
template <std::size_t kRows>
__attribute__((target("avx512bf16"), noinline)) void ThinPairs(std::size_t groups, const Word* HWY_RESTRICT a,
                                                               std::size_t strip, const Word* HWY_RESTRICT b,
                                                               float* HWY_RESTRICT out, std::size_t ld,
                                                               TileStore store) {
  __m512 even[kRows], odd[kRows];
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kRows; ++i) even[i] = odd[i] = _mm512_setzero_ps();
  for (std::size_t g = 0; g < groups; ++g, a += 2 * strip, b += 2 * kThinLanes) {
    const __m512i first = _mm512_load_si512(b), second = _mm512_load_si512(b + kThinLanes);
#pragma GCC unroll 8
    for (std::size_t i = 0; i < kRows; ++i) {
      const __m512i left = _mm512_set1_epi32(static_cast<int>(a[i]));
      const __m512i right = _mm512_set1_epi32(static_cast<int>(a[strip + i]));
      even[i] = _mm512_dpbf16_ps(even[i], (__m512bh)left, (__m512bh)first);
      odd[i] = _mm512_dpbf16_ps(odd[i], (__m512bh)right, (__m512bh)second);
    }
  }
#pragma GCC unroll 8
  for (std::size_t i = 0; i < kRows; ++i) {
    float* to = out + i * ld;
    const __m512 before = store == TileStore::add ? _mm512_loadu_ps(to) : _mm512_setzero_ps();
    _mm512_storeu_ps(to, _mm512_add_ps(before, _mm512_add_ps(even[i], odd[i])));
  }
}

/// The same by fused multiply-adds, for one row.
HWY_NOINLINE void SlowThinPairs(std::size_t groups, const Word* HWY_RESTRICT a, std::size_t strip,
                                const Word* HWY_RESTRICT b, float* HWY_RESTRICT out, TileStore store) {
  const hn::ScalableTag<float> d;
  const hn::ScalableTag<Word> du;
  const auto first = [&](hn::Vec<decltype(du)> pair)
                         HWY_ATTR { return hn::BitCast(d, hn::And(pair, hn::Set(du, 0xffff0000))); };
  const auto second = [&](hn::Vec<decltype(du)> pair)
                          HWY_ATTR { return hn::BitCast(d, hn::ShiftLeft<16>(pair)); };
  hn::Vec<decltype(d)> sums[2] = {hn::Zero(d), hn::Zero(d)};
  for (std::size_t p = 0; p < 2 * groups; ++p) {
    const auto left = hn::Set(du, a[p * strip]), right = hn::Load(du, b + p * kThinLanes);
    sums[p % 2] = hn::MulAdd(first(left), first(right), sums[p % 2]);
    sums[p % 2] = hn::MulAdd(second(left), second(right), sums[p % 2]);
  }
  const auto before = store == TileStore::add ? hn::LoadU(d, out) : hn::Zero(d);
  hn::StoreU(hn::Add(before, hn::Add(sums[0], sums[1])), d, out);
}

/// One block of 16 columns of B, of `depth` ≤ kSumBlock terms.
class ThinBlock {
 public:
  /// The columns [column, column + count) from term `k` on; the missing ones are copies of the last one, and
  /// their sums are not read. Meanwhile as many bytes from `ahead` on are prefetched.
  ThinBlock(const PackSource& b, std::size_t column, std::size_t count, std::size_t k, std::size_t depth,
            StreamAhead ahead)
      : depth_(depth), stride_(b.ld), ahead_(ahead) {
    columns_ = reinterpret_cast<const std::uint16_t*>(b.At(column, k));
    if (count == kThinLanes && b.type == Scalar::bf16 && Unrounded(b)) return;
    constexpr auto kBlock = static_cast<std::size_t>(kSumBlock);
    for (std::size_t c = 0; c < kThinLanes; ++c) {
      std::uint16_t* to = staged_ + c * kBlock;
      const std::uint16_t* row = bf16::BfloatRow(b, column + std::min(c, count - 1), k, depth, to);
      if (row != to) std::copy_n(row, depth, to);
    }
    columns_ = staged_;
    stride_ = kBlock;
  }

  /// Computes out[i * ld + c] = the sum of row i and column c, or adds it to the previous value, for a strip
  /// of 4, 8 or 16 rows. `a` is its panel.
  void Multiply(const std::uint16_t* a, std::size_t rows, float* out, std::size_t ld, TileStore store) const {
    const std::uint32_t of_a = bf16::ExponentAt(a);
    // Factors of B must have at least this exponent: 1 for a normal number.
    const std::uint32_t least = bf16::kLeastExponents - std::min(of_a, bf16::kLeastExponents - 1);
    const Word* left = reinterpret_cast<const Word*>(a + rows * kHead);
    SideBySide<std::uint16_t> at(columns_, stride_);
    StreamAhead ahead = ahead_;
    for (std::size_t k = 0; k < depth_; k += kTileBlock, store = TileStore::add) {
      const std::size_t terms = std::min(kTileBlock, depth_ - k), groups = groups_of(terms);
      ThinWords words;
      if (terms % (2 * kGroup) == 0) {
        ahead.Ask<kThinLanes * kTileBlock * sizeof *columns_>();
        words.Read(at, groups);
      } else {  // the last ones
        HWY_ALIGN std::uint16_t rest[kThinLanes * kTileBlock] = {};
        for (std::size_t c = 0; c < kThinLanes; ++c)
          std::copy_n(columns_ + c * stride_ + k, terms, rest + c * kTileBlock);
        SideBySide<std::uint16_t> at_rest(rest, kTileBlock);
        words.Read(at_rest, groups + groups % 2);
      }
      const bool fast = of_a > 0 && !words.Below(least);
      GuardTask::add(fast);
      if (!fast) {
        for (std::size_t i = 0; i < rows; ++i)
          SlowThinPairs(groups, left + i, rows, words.get(), out + i * ld, store);
      } else if (rows == 4) {
        ThinPairs<4>(groups, left, rows, words.get(), out, ld, store);
      } else {
        for (std::size_t i = 0; i < rows; i += kThinAtOnce)
          ThinPairs<kThinAtOnce>(groups, left + i, rows, words.get(), out + i * ld, ld, store);
      }
      left += 2 * groups * rows;
    }
  }

 private:
  std::size_t depth_, stride_;
  const std::uint16_t* columns_;
  StreamAhead ahead_;
  HWY_ALIGN std::uint16_t staged_[kThinLanes * (static_cast<std::size_t>(kSumBlock) + kThinLanes)];
};

}  // namespace pairs
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // HWY_TARGET == HWY_AVX3

#endif  // MANTISSA_KERNELS_CPU_GEMM_THIN_PAIRS_INL_H_
