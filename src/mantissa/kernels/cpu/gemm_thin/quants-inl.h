// Thin products (kernels/cpu/gemm_thin/thin-inl.h) with columns in quantized blocks (core/numeric/quants.h),
// which are decoded element by element.
#if defined(MANTISSA_KERNELS_CPU_GEMM_THIN_QUANTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_THIN_QUANTS_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_THIN_QUANTS_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_THIN_QUANTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mantissa/core/numeric/quants-inl.h"
#include "mantissa/kernels/cpu/gemm/pack-inl.h"
#include "mantissa/kernels/cpu/gemm/source-inl.h"
#include "mantissa/kernels/cpu/gemm_thin/quant_columns-inl.h"
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
  // A loop over the words compiles in half of the time, and costs no speed while additions wait for each
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
