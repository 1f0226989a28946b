// Thin products (kernels/cpu/gemm_thin/thin-inl.h) with columns in quantized blocks (core/numeric/quants.h):
// a lane holds the next 32 bits of its column's codes, 8 or 4 elements, which are decoded one after the
// other, so nothing is staged.
#if defined(MANTISSA_KERNELS_CPU_GEMM_THIN_QUANTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_THIN_QUANTS_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_THIN_QUANTS_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_THIN_QUANTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "mantissa/core/numeric/quants-inl.h"
#include "mantissa/kernels/cpu/gemm/pack-inl.h"
#include "mantissa/kernels/cpu/gemm/source-inl.h"
#include "mantissa/kernels/cpu/gemm_thin/sums-inl.h"
#include "mantissa/kernels/cpu/stream_ahead.h"
#include "mantissa/kernels/interleave.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// True if the values of `b` are rounded to bf16, once.
inline bool IsRoundedToBf16(const PackSource& b) {
  return factor_of(b.type, b.operand).format == Scalar::bf16 &&
         (b.type == Scalar::bf16 || holds(b.type, Scalar::f32));
}

/// True if ThinQuantBlock can multiply depths [k, k + depth) of columns of `b`: whole blocks, in the usual
/// order for f32 values or values that are rounded to bf16.
inline bool IsThinQuant(const PackSource& b, std::size_t k, std::size_t depth, SumOrder order) {
  if (!b.Quantized() || b.unscale != 1 || !b.operand.plain()) return false;
  if (k % kQuantBlock != 0 || depth % kQuantBlock != 0) return false;
  if (order == SumOrder::tile) return IsRoundedToBf16(b);
  return holds(factor_of(b.type, b.operand).format, Scalar::f32);
}

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

/// Calls call(w) for the four words of a piece, with or without a loop.
template <bool kLoop, class Call>
HWY_INLINE void ForWords(const Call& call) {
  if constexpr (kLoop) {
    HWY_UNROLL(1)
    for (std::size_t w = 0; w < 4; ++w) call(w);
  } else {
    HWY_UNROLL(4)
    for (std::size_t w = 0; w < 4; ++w) call(w);
  }
}

/// ThinBlock for kVectors vectors of columns from `column` on, depths [k, k + depth), of which IsThinQuant is
/// true. The sums of several vectors are chains of their own: one alone waits for the latency of its
/// additions. kWords: `b` is interleaved.
template <SumOrder kOrder, std::size_t kRows, std::size_t kStrip, QuantFormat F, std::size_t kVectors = 1,
          bool kWords = false>
HWY_NOINLINE void ThinQuantBlock(const PackSource& b, std::size_t column, std::size_t k, std::size_t depth,
                                 const float* HWY_RESTRICT a, StreamAhead ahead, float* HWY_RESTRICT out,
                                 std::size_t ld, TileStore store) {
  constexpr bool kToBf16 = kOrder == SumOrder::tile;
  constexpr QuantTraits kTraits = traits(F);
  constexpr std::size_t kLanes = HWY_LANES(float), kBytes = kTraits.bytes,
                        kPieces = kTraits.code_bits / 8 + 1;
  // A loop over the words takes a third of the time to compile, and costs no speed while additions wait for each
  // other.
  constexpr bool kLoop = !kWords && kVectors == 1 && kRows <= (kToBf16 ? 2 : 4);
  const hn::ScalableTag<std::uint32_t> du;
  using VU = hn::Vec<decltype(du)>;
  using Columns = QuantColumns<F, kToBf16>;
  ThinSums<kOrder, kRows, float> sums[kVectors];
  const std::uint8_t* blocks = b.At(column, k);
  const std::size_t stride = b.run_bytes;
  Columns columns[kVectors];
  const auto heads = [&] {
    if constexpr (kWords) {
      return InterleavedQuants<F, kVectors>(b, column, k);
    } else {
      return QuantHeads<F, kVectors * kLanes>(blocks, stride, depth / kQuantBlock);
    }
  }();
  for (std::size_t at = 0; at < depth; at += kQuantBlock, blocks += kBytes, a += kQuantBlock * kStrip) {
    if (sums[0].kInBlocks && at > 0) {
      HWY_UNROLL(4)
      for (std::size_t v = 0; v < kVectors; ++v) sums[v].Store(out + v * kLanes, ld, store);
      store = TileStore::add;
    }
    ahead.Ask<kVectors * kLanes * kBytes>();
    const std::size_t block = at / kQuantBlock;
    [[maybe_unused]] bool negative = false;
    HWY_UNROLL(4)
    for (std::size_t v = 0; v < kVectors; ++v) {
      const std::size_t place = kWords ? v : v * kLanes;
      columns[v].Start(b, column + v * kLanes, k + at, heads.Heads(block, place), heads.Upper(block),
                       heads.Fifths(block, place));
      negative = negative || columns[v].Negative();
    }
    for (std::size_t piece = 0; piece < kPieces; ++piece) {
      [[maybe_unused]] const std::uint8_t* codes = blocks + kTraits.codes + 16 * piece;
      VU words[kVectors][4];
      HWY_UNROLL(4)
      for (std::size_t v = 0; v < kVectors; ++v) {
        if constexpr (kWords) {
          HWY_UNROLL(4)
          for (std::size_t w = 0; w < 4; ++w)
            words[v][w] = hn::LoadU(du, heads.Codes(block, v, 4 * piece + w));
        } else {
          const std::uint8_t* of_vector = codes + v * kLanes * stride;
          TransposePieces(
              du,
              [&](std::size_t c) { return reinterpret_cast<const std::uint32_t*>(of_vector + c * stride); },
              0, [&](std::size_t i, VU word) HWY_ATTR { words[v][i] = word; });
        }
      }
#if HWY_TARGET == HWY_AVX3
      if constexpr (Columns::kShifts) {
        if (!negative) {
          const VU middle = hn::Set(du, kShiftBytes);
          ForWords<kLoop>([&](std::size_t w) HWY_ATTR {
            HWY_UNROLL(4)
            for (std::size_t v = 0; v < kVectors; ++v) words[v][w] = hn::Xor(words[v][w], middle);
            const auto add_byte = [&](auto byte) HWY_ATTR {
              const std::size_t j = 16 * piece + 4 * w + byte();
              HWY_UNROLL(4)
              for (std::size_t v = 0; v < kVectors; ++v)
                sums[v].Add(j, a + j * kStrip, columns[v].template Shifted<byte()>(words[v][w]));
            };
            add_byte(std::integral_constant<int, 0>());
            add_byte(std::integral_constant<int, 1>());
            add_byte(std::integral_constant<int, 2>());
            add_byte(std::integral_constant<int, 3>());
          });
          continue;
        }
      }
#endif
      // Adds element j of the block, whose code starts at bit kBit of words w.
      const auto add = [&](auto bit, std::size_t w, std::size_t j) HWY_ATTR {
        HWY_UNROLL(4)
        for (std::size_t v = 0; v < kVectors; ++v)
          sums[v].Add(j, a + j * kStrip, columns[v].template Value<bit()>(words[v][w], j));
      };
      if constexpr (is_normal_float(F)) {
        // Byte j of the words has the code of element 2 j in its upper half and that of 2 j + 1 in its lower.
        ForWords<kLoop>([&](std::size_t w) HWY_ATTR {
          const auto add_byte = [&](auto byte) HWY_ATTR {
            const std::size_t j = 8 * w + 2 * byte();
            add(std::integral_constant<int, 8 * byte() + 4>(), w, j);
            add(std::integral_constant<int, 8 * byte()>(), w, j + 1);
          };
          add_byte(std::integral_constant<int, 0>());
          add_byte(std::integral_constant<int, 1>());
          add_byte(std::integral_constant<int, 2>());
          add_byte(std::integral_constant<int, 3>());
        });
        continue;
      }
      // Element j of the piece has its code at bit kBit of byte j of the words.
      const auto add_words = [&](auto bit, std::size_t first) HWY_ATTR {
        constexpr int kBit = bit();
        // Codes of 8 bits come here only if a scale is negative.
        ForWords<kLoop || Columns::kShifts>([&](std::size_t w) HWY_ATTR {
          const std::size_t j = first + 4 * w;
          add(std::integral_constant<int, kBit>(), w, j);
          add(std::integral_constant<int, kBit + 8>(), w, j + 1);
          add(std::integral_constant<int, kBit + 16>(), w, j + 2);
          add(std::integral_constant<int, kBit + 24>(), w, j + 3);
        });
      };
      add_words(std::integral_constant<int, 0>(), 16 * piece);
      if constexpr (kTraits.code_bits < 8) add_words(std::integral_constant<int, 4>(), 16);
    }
  }
  HWY_UNROLL(4)
  for (std::size_t v = 0; v < kVectors; ++v) sums[v].Store(out + v * kLanes, ld, store);
}

/// ThinQuantBlock for all rows of a strip, in passes of as many as are summed at once.
template <SumOrder kOrder, std::size_t kStrip, QuantFormat F>
void ThinQuantStrip(const PackSource& b, std::size_t column, std::size_t k, std::size_t depth, const float* a,
                    StreamAhead ahead, float* out, std::size_t ld, TileStore store) {
  constexpr std::size_t kRows = thin_rows_at_once<kOrder>(kStrip);
  for (std::size_t i = 0; i < kStrip; i += kRows) {
    ThinQuantBlock<kOrder, kRows, kStrip, F>(b, column, k, depth, a + i, ahead, out + i * ld, ld, store);
  }
}

/// ThinQuantStrip for a number of rows known at run time.
template <SumOrder kOrder, QuantFormat F>
void ThinQuantOf(std::size_t rows, const PackSource& b, std::size_t column, std::size_t k, std::size_t depth,
                 const float* a, StreamAhead ahead, float* out, std::size_t ld, TileStore store) {
  WithThinRows(rows, [&](auto n) HWY_ATTR {
    ThinQuantStrip<kOrder, n(), F>(b, column, k, depth, a, ahead, out, ld, store);
  });
}

/// ThinQuantOf for the format of `b`.
template <SumOrder kOrder>
void MultiplyThinQuant(std::size_t rows, const PackSource& b, std::size_t column, std::size_t k,
                       std::size_t depth, const float* a, StreamAhead ahead, float* out, std::size_t ld,
                       TileStore store) {
  mantissa::HWY_NAMESPACE::WithFormat(b.quants.format, [&](auto f) HWY_ATTR {
    ThinQuantOf<kOrder, f()>(rows, b, column, k, depth, a, ahead, out, ld, store);
  });
}

/// The vectors of columns that are multiplied at once with one row. More than two of 8 bits leave too few
/// registers.
constexpr std::size_t quant_vectors(QuantFormat f) {
  return traits(f).code_bits == 8 ? 2 : 4;
}

/// ThinQuantBlock for one row and two or quant_vectors() vectors of columns, in the format of `b`.
template <SumOrder kOrder>
void MultiplyQuantVectors(const PackSource& b, std::size_t column, std::size_t vectors, std::size_t k,
                          std::size_t depth, const float* a, StreamAhead ahead, float* out, TileStore store) {
  mantissa::HWY_NAMESPACE::WithFormat(b.quants.format, [&](auto f) HWY_ATTR {
    if (vectors == 2)
      return ThinQuantBlock<kOrder, 1, 1, f(), 2>(b, column, k, depth, a, ahead, out, 0, store);
    ThinQuantBlock<kOrder, 1, 1, f(), quant_vectors(f())>(b, column, k, depth, a, ahead, out, 0, store);
  });
}

/// ThinQuantBlock for interleaved columns of `b` and a strip of `rows` < kStripRows rows, in passes of as
/// many as are summed at once; for one row, `vectors` vectors of columns: one, two or quant_vectors(), else
/// one.
template <SumOrder kOrder>
void MultiplyInterleavedQuants(std::size_t rows, const PackSource& b, std::size_t column, std::size_t vectors,
                               std::size_t k, std::size_t depth, const float* a, StreamAhead ahead,
                               float* out, std::size_t ld, TileStore store) {
  mantissa::HWY_NAMESPACE::WithFormat(b.quants.format, [&](auto f) HWY_ATTR {
    if constexpr (interleaves(f())) {
      const auto block = [&](auto strip_rows, auto strip_vectors) HWY_ATTR {
        constexpr std::size_t kStrip = strip_rows(), kRows = thin_rows_at_once<kOrder>(kStrip);
        for (std::size_t i = 0; i < kStrip; i += kRows)
          ThinQuantBlock<kOrder, kRows, kStrip, f(), strip_vectors(), true>(b, column, k, depth, a + i, ahead,
                                                                            out + i * ld, ld, store);
      };
      using One = std::integral_constant<std::size_t, 1>;
      using Two = std::integral_constant<std::size_t, 2>;
      if (rows == 2) return block(Two(), One());
      if (rows == 4) return block(std::integral_constant<std::size_t, 4>(), One());
      if (rows > 4) return block(std::integral_constant<std::size_t, 8>(), One());
      if (vectors == 1) return block(One(), One());
      if (vectors == 2) return block(One(), Two());
      block(One(), std::integral_constant<std::size_t, quant_vectors(f())>());
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_THIN_QUANTS_INL_H_
