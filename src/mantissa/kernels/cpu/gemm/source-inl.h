// The operands of a matrix product as packing reads them: runs of elements, converted from their storage
// format and rounded to their operand format.
#if defined(MANTISSA_KERNELS_CPU_GEMM_SOURCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_SOURCE_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_SOURCE_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_SOURCE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "mantissa/core/numeric/convert-inl.h"
#include "mantissa/core/numeric/decode_blocks-inl.h"
#include "mantissa/core/numeric/factor-inl.h"
#include "mantissa/core/numeric/quants-inl.h"
#include "mantissa/kernels/cpu/gemm/microkernel-inl.h"
#include "mantissa/kernels/gemm.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// One operand as packing sees it: `side` counts the rows of A or the columns of B, `depth` the terms of the
/// sum. The matrix consists of runs, its stored rows: run `side` with elements in order of depth if
/// `depth_contiguous`, else run `depth` with elements in order of sides.
struct PackSource {
  const void* data = nullptr;
  Scalar type = Scalar::f32;     // storage format
  Factor operand = Scalar::f32;  // rounding
  std::size_t ld = 0;            // elements from one run to the next
  bool depth_contiguous = false;
  float unscale = 1;  // multiplies the values first
  int part = 0;       // the part of the operand to pack
  std::size_t run_bytes = 0, element_bits = 0;
  CodedRow packed = {};        // of blocks: the first run; no elements: none
  bool coded = false;          // blocks are read as coded elements (core/numeric/card_sum.h)
  std::size_t block_runs = 1;  // runs that share a row of scales
  std::size_t scales_per_run = 0;
  std::size_t quant_block = 0;  // bytes of a quantized block; 0: not quantized
  QuantRows quants = {};

  PackSource() = default;
  PackSource(const GemmOperand& o, bool depth_runs)
      : data(o.matrix.data),
        type(o.matrix.type),
        operand(o.operand),
        ld(static_cast<std::size_t>(o.matrix.ld)),
        depth_contiguous(depth_runs),
        unscale(o.unscale) {
    const Layout layout{.type = o.matrix.type, .blocks = o.blocks};
    run_bytes = layout.row_bytes(o.matrix.ld);
    element_bits = layout.element_bits();
    if (o.quants) {
      quants = {*o.quants, ld, data, o.scales};
      quant_block = traits(*o.quants).bytes;
      run_bytes = quant_bytes(*o.quants, ld);
    }
    if (!o.blocks) return;
    packed = {static_cast<const std::uint8_t*>(data), static_cast<const std::uint8_t*>(o.scales),
              o.blocks->format, o.blocks->along_rows};
    if (o.blocks->along_rows) block_runs = static_cast<std::size_t>(traits(o.blocks->format).block);
    scales_per_run = static_cast<std::size_t>(layout.scales_per_row(o.matrix.ld));
  }

  PackSource Part(std::size_t which) const {
    PackSource other = *this;
    other.part = static_cast<int>(which);
    return other;
  }
  bool InBlocks() const { return packed.elements != nullptr; }
  bool Quantized() const { return quant_block > 0; }
  /// The place of element `at` of a run; with 4 bits of the byte that contains it, in quantized blocks of the
  /// block.
  const std::uint8_t* At(std::size_t run, std::size_t at) const {
    return static_cast<const std::uint8_t*>(data) + run * run_bytes + Bytes(at);
  }
  std::size_t Bytes(std::size_t elements) const {
    return Quantized() ? elements / kQuantBlock * quant_block : elements * element_bits / 8;
  }
  /// A run of packed blocks.
  CodedRow Packed(std::size_t run) const {
    CodedRow row = packed;
    row.elements += run * run_bytes;
    row.scales += run / block_runs * scales_per_run;
    return row;
  }
};

/// Prefetches the lines from which the next block of an operand will be packed, while `tiles` tiles are
/// multiplied. The last of these tiles prefetch them, so the lines are still cached when they are packed.
class SourceAhead {
 public:
  SourceAhead() = default;
  SourceAhead(const PackSource& from, std::size_t first, std::size_t sides, std::size_t first_depth,
              std::size_t depth, std::size_t tiles)
      : tiles_(tiles), stride_(from.run_bytes) {
    const std::size_t runs = from.depth_contiguous ? sides : depth;
    const std::size_t length = from.depth_contiguous ? depth : sides;
    run_ = from.depth_contiguous ? from.At(first, first_depth) : from.At(first_depth, first);
    run_lines_ = (from.Bytes(length) + kLine - 1) / kLine;
    left_ = runs * run_lines_;
  }

  /// Returns the lines that one tile prefetches, or null.
  const LinesAhead* Next() {
    if (left_ == 0 || 2 * left_ < tiles_-- * kLinesAhead) return nullptr;
    for (const void*& line : lines_) {
      line = run_ + kLine * line_;
      if (left_ == 0 || --left_ == 0) continue;
      if (++line_ == run_lines_) {
        line_ = 0;
        run_ += stride_;
      }
    }
    return &lines_;
  }

 private:
  static constexpr std::size_t kLine = 64;
  std::size_t tiles_ = 0, left_ = 0;
  const std::uint8_t* run_ = nullptr;  // the run that contains the next line
  std::size_t stride_ = 0, run_lines_ = 0, line_ = 0;
  LinesAhead lines_{};
};

/// True if elements are multiplied as stored.
inline bool Unrounded(const PackSource& from) {
  return from.unscale == 1 && from.operand.parts == 1 && !from.operand.flush_subnormals &&
         holds(from.operand.format, from.type) && !from.InBlocks() && !from.Quantized();
}

/// Decodes elements [at, at + n) of a run of packed blocks into `buffer`, rounded as an operand.
inline void DecodeOperandRow(const PackSource& from, std::size_t run, std::size_t at, std::size_t n,
                             float* HWY_RESTRICT buffer) {
  if (from.coded) return mantissa::HWY_NAMESPACE::DecodeCodedRow(from.Packed(run), at, n, buffer);
  mantissa::HWY_NAMESPACE::DecodeRow(from.Packed(run), at, n, buffer);
  const float unscale = from.unscale;
  if (unscale != 1) {
    mantissa::HWY_NAMESPACE::RewriteRow(
        buffer, n, [unscale](auto d, auto v) HWY_ATTR { return hn::Mul(v, hn::Set(d, unscale)); });
  }
  if (!from.operand.plain() || !holds(from.operand.format, from.type))
    mantissa::HWY_NAMESPACE::FactorRow<float>(buffer, n, from.operand, from.part);
}

/// The same for a run of quantized blocks.
inline void DequantizeOperandRow(const PackSource& from, std::size_t run, std::size_t at, std::size_t n,
                                 float* HWY_RESTRICT buffer) {
  mantissa::HWY_NAMESPACE::DequantizeRow(from.quants, run, at, n, buffer);
  if (!holds(from.type, Scalar::f32)) mantissa::HWY_NAMESPACE::RoundRow<float>(buffer, n, from.type);
  const float unscale = from.unscale;
  if (unscale != 1) {
    mantissa::HWY_NAMESPACE::RewriteRow(
        buffer, n, [unscale](auto d, auto v) HWY_ATTR { return hn::Mul(v, hn::Set(d, unscale)); });
  }
  if (!from.operand.plain() || !holds(from.operand.format, from.type))
    mantissa::HWY_NAMESPACE::FactorRow<float>(buffer, n, from.operand, from.part);
}

/// Loads elements [at, at + n) of a run as T into `buffer`, rounded once as an operand. Not inlined: there
/// are many formats, and many kernels that pack.
template <class T>
HWY_NOINLINE void ConvertOperandRow(const PackSource& from, std::size_t run, std::size_t at, std::size_t n,
                                    T* HWY_RESTRICT buffer) {
  using mantissa::HWY_NAMESPACE::FactorRow;
  using mantissa::HWY_NAMESPACE::LoadRow;
  using mantissa::HWY_NAMESPACE::RewriteRow;
  if constexpr (std::is_same_v<T, float>) {
    if (from.InBlocks()) return DecodeOperandRow(from, run, at, n, buffer);
    if (from.Quantized()) return DequantizeOperandRow(from, run, at, n, buffer);
  }
  const std::size_t offset = run * from.ld + at;
  if (Unrounded(from)) return LoadRow<T>(from.data, from.type, offset, n, buffer);
  if (from.type == Scalar::f64 && std::is_same_v<T, float> && from.operand.parts == 1) {
    // Loading as f32 would round twice.
    double wide[64];
    for (std::size_t i = 0; i < n; i += 64) {
      const std::size_t count = std::min<std::size_t>(64, n - i);
      LoadRow<double>(from.data, from.type, offset + i, count, wide);
      FactorRow<double>(wide, count, from.operand, 0);
      LoadRow<T>(wide, Scalar::f64, 0, count, buffer + i);
    }
    return;
  }
  LoadRow<T>(from.data, from.type, offset, n, buffer);
  if (from.unscale != 1) {
    const T unscale = from.unscale;
    RewriteRow(buffer, n, [unscale](auto d, auto v) HWY_ATTR { return hn::Mul(v, hn::Set(d, unscale)); });
    if (holds(from.operand.format, from.type)) return;
  }
  FactorRow<T>(buffer, n, from.operand, from.part);
}

/// Returns the same elements, in place if possible, else in `buffer`.
template <class T>
HWY_INLINE const T* OperandRow(const PackSource& from, std::size_t run, std::size_t at, std::size_t n,
                               T* HWY_RESTRICT buffer) {
  if (Unrounded(from) && mantissa::HWY_NAMESPACE::LieAs<T>(from.data, from.type))
    return static_cast<const T*>(from.data) + run * from.ld + at;
  ConvertOperandRow<T>(from, run, at, n, buffer);
  return buffer;
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_SOURCE_INL_H_
