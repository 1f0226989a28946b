// Columns in quantized blocks (core/numeric/quants.h) for thin products: where their words lie, in separate
// or interleaved columns, and the values of a vector of columns, which are decoded element by element. A lane
// holds the next 32 bits of its column's codes, 8 or 4 elements, so nothing is staged.
#if defined(MANTISSA_KERNELS_CPU_GEMM_THIN_QUANT_COLUMNS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_THIN_QUANT_COLUMNS_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_THIN_QUANT_COLUMNS_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_THIN_QUANT_COLUMNS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "mantissa/core/numeric/quants-inl.h"
#include "mantissa/kernels/cpu/gemm/pack-inl.h"
#include "mantissa/kernels/cpu/gemm/source-inl.h"
#include "mantissa/kernels/interleave.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Finite values rounded to bf16, to nearest even.
template <class D>
HWY_INLINE hn::Vec<D> FiniteToBf16(D d, hn::Vec<D> x) {
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::BitCast(du, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffU)));
  return hn::BitCast(d, hn::And(rounded, hn::Set(du, 0xffff0000U)));
}

/// The words of blocks of kColumns columns that describe the codes: scales, minima, and fifth bits. They are
/// copied for all blocks in advance: a vector that is loaded from words which were stored just now waits
/// until these stores have left the pipeline, and so do the products of the block.
template <QuantFormat F, std::size_t kColumns>
class QuantHeads {
 public:
  /// Copies those of `blocks` blocks of every column. The first one of column c starts at `first` + c ·
  /// stride.
  HWY_INLINE QuantHeads(const std::uint8_t* first, std::size_t stride, std::size_t blocks) {
    if constexpr (!kTraits.apart) {
      if (blocks == kMost) {
        Copy(first, stride, kMost);
      } else {
        CopySome(first, stride, blocks);
      }
    }
  }
  const std::uint32_t* Heads(std::size_t block, std::size_t column) const {
    return heads_[kTraits.apart ? 0 : block] + column;
  }
  const std::uint32_t* Fifths(std::size_t block, std::size_t column) const {
    return fifths_[kFifth ? block : 0] + column;
  }
  /// True if the scale is in the upper half of its word.
  static constexpr bool Upper(std::size_t /*block*/) { return false; }

 private:
  static constexpr QuantTraits kTraits = traits(F);
  static constexpr bool kFifth = kTraits.code_bits == 5;
  static constexpr std::size_t kMost = static_cast<std::size_t>(kSumBlock) / kQuantBlock;

  HWY_NOINLINE void CopySome(const std::uint8_t* first, std::size_t stride, std::size_t blocks) {
    Copy(first, stride, blocks);
  }
  HWY_INLINE void Copy(const std::uint8_t* first, std::size_t stride, std::size_t blocks) {
    HWY_UNROLL(1)  // block after block: column after column takes longer, also to compile
    for (std::size_t i = 0; i < blocks; ++i, first += kTraits.bytes) {
      HWY_UNROLL(16)
      for (std::size_t c = 0; c < kColumns; ++c) {
        const std::uint8_t* block = first + c * stride;
        std::memcpy(&heads_[i][c], block, sizeof heads_[i][c]);
        if constexpr (kFifth) std::memcpy(&fifths_[i][c], block + kTraits.codes - 4, sizeof fifths_[i][c]);
      }
    }
  }

  HWY_ALIGN std::uint32_t heads_[kTraits.apart ? 1 : kMost][kColumns];
  HWY_ALIGN std::uint32_t fifths_[kFifth ? kMost : 1][kColumns];
};

#if HWY_TARGET == HWY_AVX3
/// The numbers of all codes of 4 or 5 bits.
template <QuantFormat F>
struct CodeTable {
  alignas(64) float value[32];
  constexpr CodeTable() : value() {
    for (int i = 0; i < 32; ++i) {
      value[i] = is_normal_float(F) ? kNormalFloat4[static_cast<std::size_t>(i) % 16]
                                    : static_cast<float>(i - traits(F).zero);
    }
  }
  constexpr operator const float*() const { return value; }
};
template <QuantFormat F>
inline constexpr CodeTable<F> kCodes{};
#endif

/// A code of 8 bits plus 128 as the second byte of this f32 number makes it the code plus kShift. A scale has
/// 11 bits, so that (code + kShift) · scale − kShift · scale is exact.
inline constexpr std::uint32_t kShiftBits = 0x47000000,
                               kShiftBytes = 0x80808080;  // what adds 128 to each byte
inline constexpr float kShift = 32768 + 128;

/// The blocks of a vector of columns at one depth, one column a lane, decoded element by element. Elements
/// must be asked for as they lie: `half` 0 before 1 for codes of 4 and 5 bits.
template <QuantFormat F, bool kToBf16>
class QuantColumns {
 public:
  using D = hn::ScalableTag<float>;
  using DU = hn::RebindToUnsigned<D>;
  using V = hn::Vec<D>;
  using VU = hn::Vec<DU>;

  /// True if Shifted() computes the values of blocks whose scales are not negative.
  static constexpr bool kShifts = HWY_TARGET == HWY_AVX3 && F == QuantFormat::q8_0;

  HWY_INLINE QuantColumns() : scale_(hn::Zero(D())), minimum_(hn::Zero(D())), fifth_(hn::Zero(DU())) {}

  /// Starts the blocks at depth k of the columns from `column` on. `heads` and `fifths` are their QuantHeads;
  /// `upper`: the scales are in the upper halves. Blocks must be started in ascending order of k.
  HWY_INLINE void Start(const PackSource& b, std::size_t column, std::size_t k, const std::uint32_t* heads,
                        bool upper, const std::uint32_t* fifths) {
    const DU du;
    if constexpr (kTraits.apart) {
      if (started_ && (kTraits.per_scale == 0 || k % kTraits.per_scale != 0)) return;
      started_ = true;
      HWY_ALIGN float scales[kLanes];
      for (std::size_t c = 0; c < kLanes; ++c) scales[c] = quant_scale(b.quants, column + c, k);
      scale_ = hn::Load(D(), scales);
    } else {
      auto head = hn::Load(du, heads);
      if (upper) head = hn::ShiftRight<16>(head);
      scale_ = Halves(hn::And(head, hn::Set(du, 0xffffU)));
      if constexpr (kTraits.minimum) minimum_ = Halves(hn::ShiftRight<16>(head));
      if constexpr (kShifts) {
        minimum_ = hn::Mul(scale_, hn::Set(D(), -kShift));
        negative_ = !hn::AllFalse(du, hn::TestBit(head, hn::Set(du, 0x8000U)));
      }
      if constexpr (kTraits.code_bits == 5) fifth_ = hn::Load(du, fifths);
    }
  }

  /// True if a scale of the blocks is negative.
  bool Negative() const { return negative_; }

#if HWY_TARGET == HWY_AVX3
  /// Returns the values of the codes in byte kByte of `words`, to which kShiftBytes were applied: in two
  /// instructions less than by converting the code. The product of a negative scale and 0 would lose its
  /// sign.
  template <int kByte>
  HWY_INLINE V Shifted(VU words) const {
    constexpr __mmask64 kSecondBytes = 0x2222222222222222;
    const __m512i from = _mm512_set4_epi32((12 + kByte) << 8, (8 + kByte) << 8, (4 + kByte) << 8, kByte << 8);
    const __m512i exponents = _mm512_set1_epi32(kShiftBits);
    const V code{_mm512_castsi512_ps(_mm512_mask_shuffle_epi8(exponents, kSecondBytes, words.raw, from))};
    const V x = hn::MulAdd(code, scale_, minimum_);
    return kToBf16 ? FiniteToBf16(D(), x) : x;
  }
#endif

  /// Returns the values of the elements whose codes start at bit kBit of `words`. `element` is their place
  /// in the block, for the fifth bit.
  template <int kBit>
  HWY_INLINE V Value(VU words, std::size_t element) const {
    const D d;
    V x = hn::Zero(d);
    const V code = Code<kBit>(words, element);
    if constexpr (kTraits.minimum) {
      x = hn::MulAdd(code, scale_, minimum_);
    } else {
      x = hn::Mul(code, scale_);
    }
    return kToBf16 ? FiniteToBf16(d, x) : x;
  }

 private:
  static constexpr QuantTraits kTraits = traits(F);
  static constexpr std::size_t kLanes = HWY_LANES(float);

  /// The f16 numbers in the lower halves of the lanes.
  static HWY_INLINE V Halves(VU bits) {
    const hn::Rebind<std::uint16_t, D> du16;
    const hn::Rebind<hwy::float16_t, D> dh;
    return hn::PromoteTo(D(), hn::BitCast(dh, hn::TruncateTo(du16, bits)));
  }

  template <int kBit>
  HWY_INLINE V Code(VU words, std::size_t element) const {
    const D d;
    const DU du;
    const hn::RebindToSigned<D> di;
    if constexpr (kTraits.code_bits == 8) {
      return hn::ConvertTo(d, hn::ShiftRight<24>(hn::BitCast(di, hn::ShiftLeft<24 - kBit>(words))));
    } else {
#if HWY_TARGET == HWY_AVX3
      // The look-up reads only as many bits of an index as the table has.
      const __m512i index = hn::ShiftRight<kBit>(words).raw;
      if constexpr (kTraits.code_bits == 4) {
        return V{_mm512_permutexvar_ps(index, hn::Load(d, kCodes<F>).raw)};
      } else {
        const __m512i fifth =
            _mm512_rorv_epi32(fifth_.raw, _mm512_set1_epi32(static_cast<int>(element + 28) % 32));
        const __m512i both = _mm512_ternarylogic_epi32(_mm512_set1_epi32(15), index, fifth, 0xca);
        return V{_mm512_permutex2var_ps(hn::Load(d, kCodes<F>).raw, both, hn::Load(d, kCodes<F> + 16).raw)};
      }
#else
      auto code = hn::And(hn::ShiftRight<kBit>(words), hn::Set(du, 15U));
      if constexpr (is_normal_float(F)) return mantissa::HWY_NAMESPACE::NormalFloats(d, code);
      if constexpr (kTraits.code_bits == 5) {
        const auto bit = hn::And(hn::ShiftRightSame(fifth_, static_cast<int>(element)), hn::Set(du, 1U));
        code = hn::Or(code, hn::ShiftLeft<4>(bit));
      }
      auto number = hn::BitCast(di, code);
      if constexpr (kTraits.zero != 0) number = hn::Sub(number, hn::Set(di, kTraits.zero));
      return hn::ConvertTo(d, number);
#endif
    }
  }

  V scale_, minimum_;
  VU fifth_;  // bits of the elements
  bool started_ = false, negative_ = false;
};

/// The words of blocks of kColumns columns, from interleaved columns (kernels/interleave.h), which are read
/// where they are.
template <QuantFormat F, std::size_t kVectors>
class InterleavedQuants {
 public:
  /// The columns from `column` on, a multiple of a vector, from depth k on, a multiple of two blocks.
  HWY_INLINE InterleavedQuants(const PackSource& b, std::size_t column, std::size_t k) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t first = column + v * kLanes, lane = first % kGroup;
      words_[v] = reinterpret_cast<const std::uint32_t*>(b.At(first - lane, 0)) +
                  kPair / 2 * (k / kQuantBlock) + lane;
    }
  }
  const std::uint32_t* Heads(std::size_t block, std::size_t v) const {
    return words_[v] + kPair * (block / 2) + (kScales == 2 ? kGroup * (block % 2) : 0);
  }
  /// True if the scale is in the upper half of its word.
  static constexpr bool Upper(std::size_t block) { return kScales == 1 && block % 2 == 1; }
  const std::uint32_t* Fifths(std::size_t block, std::size_t v) const {
    return words_[v] + kPair * (block / 2) + kGroup * kScales + kBlock * (block % 2);
  }
  /// Word w of the codes.
  const std::uint32_t* Codes(std::size_t block, std::size_t v, std::size_t w) const {
    return Fifths(block, v) + kGroup * (interleaved_fifth_words(F) + w);
  }

 private:
  static constexpr std::size_t kLanes = HWY_LANES(float), kScales = interleaved_scale_words(F);
  static constexpr auto kGroup = static_cast<std::size_t>(kInterleaved);
  // Words of a group.
  static constexpr std::size_t kPair = kGroup * interleaved_pair_words(F),
                               kBlock = kGroup * (interleaved_fifth_words(F) + interleaved_code_words(F));
  const std::uint32_t* words_[kVectors];
};

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_THIN_QUANT_COLUMNS_INL_H_
