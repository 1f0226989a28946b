// Packs operands of a matrix product into panels, with conversion from their storage format and rounding to
// their operand format.
#if defined(MANTISSA_KERNELS_CPU_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_PACK_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_PACK_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_PACK_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "mantissa/kernels/cpu/microkernel-inl.h"
#include "mantissa/numeric/convert-inl.h"
#include "mantissa/numeric/factor-inl.h"
#include "mantissa/tensor/extent.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// One operand as packing sees it: `side` counts the rows of A or the columns of B, `depth` the terms of the
/// sum. Element (side, depth) is at side * ld + depth if `depth_contiguous`, else at depth * ld + side.
struct PackSource {
  const void* data = nullptr;
  Scalar type = Scalar::f32;     // storage format
  Factor operand = Scalar::f32;  // rounding
  std::size_t ld = 0;
  bool depth_contiguous = false;
  float unscale = 1;  // multiplies the values first
  int part = 0;       // the part of the operand to pack

  PackSource Part(std::size_t which) const {
    PackSource other = *this;
    other.part = static_cast<int>(which);
    return other;
  }
};

/// Prefetches the lines from which the next block of an operand will be packed, while `tiles` tiles are
/// multiplied. The last of these tiles prefetch them, so the lines are still cached when they are packed.
class SourceAhead {
 public:
  SourceAhead() = default;
  SourceAhead(const PackSource& from, std::size_t first, std::size_t sides, std::size_t first_depth,
              std::size_t depth, std::size_t tiles)
      : tiles_(tiles), stride_(from.ld * bytes_of(from.type)) {
    const std::size_t runs = from.depth_contiguous ? sides : depth;
    const std::size_t length = from.depth_contiguous ? depth : sides;
    const std::size_t begin =
        from.depth_contiguous ? first * from.ld + first_depth : first_depth * from.ld + first;
    run_ = static_cast<const std::uint8_t*>(from.data) + begin * bytes_of(from.type);
    run_lines_ = (length * bytes_of(from.type) + kLine - 1) / kLine;
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
constexpr bool Unrounded(const PackSource& from) {
  return from.unscale == 1 && from.operand.parts == 1 && !from.operand.flush_subnormals &&
         holds(from.operand.format, from.type);
}

/// Loads elements [offset, offset + n) as T into `buffer`, rounded once as an operand. Not inlined: there are
/// many formats, and many kernels that pack.
template <class T>
HWY_NOINLINE void ConvertOperandRow(const PackSource& from, std::size_t offset, std::size_t n,
                                    T* HWY_RESTRICT buffer) {
  using mantissa::HWY_NAMESPACE::FactorRow;
  using mantissa::HWY_NAMESPACE::LoadRow;
  using mantissa::HWY_NAMESPACE::RewriteRow;
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
HWY_INLINE const T* OperandRow(const PackSource& from, std::size_t offset, std::size_t n,
                               T* HWY_RESTRICT buffer) {
  if (mantissa::HWY_NAMESPACE::LieAs<T>(from.data, from.type) && Unrounded(from))
    return static_cast<const T*>(from.data) + offset;
  ConvertOperandRow<T>(from, offset, n, buffer);
  return buffer;
}

/// Loads the 128-bit pieces at row(i), row(i + step), row(i + 2 step) … into one vector, step = lanes of 128
/// bits.
template <class D, class RowAt>
HWY_INLINE hn::Vec<D> LoadPieces(D d, const RowAt& row, std::size_t i) {
  if constexpr (hn::MaxLanes(D()) * sizeof(hn::TFromD<D>) == 16) {
    return hn::LoadU(d, row(i));
  } else {
    const hn::Half<D> half;
    return hn::Combine(d, LoadPieces(half, row, i + hn::MaxLanes(half)), LoadPieces(half, row, i));
  }
}

/// Calls put(k, vector) with elements k, k + 1 … of every row, one vector each, for as many as 128 bits hold.
/// row(i) points to element k of row i.
template <class D, class RowAt, class Put>
HWY_INLINE void TransposePieces(D d, const RowAt& row, std::size_t k, const Put& put) {
  const auto r0 = LoadPieces(d, row, 0), r1 = LoadPieces(d, row, 1);
  if constexpr (sizeof(hn::TFromD<D>) == 8) {
    put(k, hn::InterleaveLower(d, r0, r1));
    put(k + 1, hn::InterleaveUpper(d, r0, r1));
  } else {
    const auto r2 = LoadPieces(d, row, 2), r3 = LoadPieces(d, row, 3);
    const auto low02 = hn::InterleaveLower(d, r0, r2), low13 = hn::InterleaveLower(d, r1, r3);
    const auto high02 = hn::InterleaveUpper(d, r0, r2), high13 = hn::InterleaveUpper(d, r1, r3);
    put(k, hn::InterleaveLower(d, low02, low13));
    put(k + 1, hn::InterleaveUpper(d, low02, low13));
    put(k + 2, hn::InterleaveLower(d, high02, high13));
    put(k + 3, hn::InterleaveUpper(d, high02, high13));
  }
}

/// Packs one vector's worth of a panel's sides, [side, side + min(lanes, kPanel − at)), at index `at` of the
/// panel, for depth ≤ kSumBlock. Sides from `last` on are zero.
template <std::size_t kPanel, class T>
HWY_NOINLINE void PackTransposed(const PackSource& from, std::size_t side, std::size_t last,
                                 std::size_t first_depth, std::size_t depth, std::size_t at,
                                 T* HWY_RESTRICT panel) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = HWY_LANES(T), kStep = 16 / sizeof(T);
  constexpr auto kBlock = static_cast<std::size_t>(kSumBlock);
  HWY_ALIGN T staged[kLanes * kBlock];
  HWY_ALIGN static constexpr T kZeros[kBlock] = {};
  const T* rows[kLanes];
  for (std::size_t i = 0; i < kLanes; ++i) {
    const bool inside = side + i < last && at + i < kPanel;
    rows[i] =
        inside ? OperandRow<T>(from, (side + i) * from.ld + first_depth, depth, staged + i * kBlock) : kZeros;
  }
  const std::size_t width = std::min(kLanes, kPanel - at);
  T* to = panel + at;
  std::size_t k = 0;
  // A vector wider than the rest of the panel overlaps the next depth, which is written after it. The last
  // depth is written element by element.
  const std::size_t end = width == kLanes ? depth : depth - std::min<std::size_t>(depth, 1);
  const auto put = [&](std::size_t j, hn::Vec<decltype(d)> v) HWY_ATTR { hn::StoreU(v, d, to + j * kPanel); };
  for (; k + kStep <= end; k += kStep)
    TransposePieces(
        d, [&](std::size_t i) { return rows[i] + k; }, k, put);
  for (; k < depth; ++k) {
    for (std::size_t i = 0; i < width; ++i) to[k * kPanel + i] = rows[i][k];
  }
}

/// Rows to prefetch ahead; rows are too far apart for the hardware to prefetch them.
inline constexpr std::size_t kRowsAhead = 8;

/// Spreads one row of `sides` over panels that are `stride` apart and fills the last one with zeros. A vector
/// wider than a panel overlaps the panel's next depth, which is written after it, unless this is the `last`
/// one.
template <std::size_t kPanel, class T>
HWY_INLINE void SpreadRow(const T* HWY_RESTRICT row, std::size_t sides, bool last, T* HWY_RESTRICT to,
                          std::size_t stride) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = HWY_LANES(T), kWhole = (kPanel + kLanes - 1) / kLanes * kLanes;
  std::size_t i = 0;
  if (kWhole == kPanel || !last) {
    for (; i + kWhole <= sides; i += kPanel, to += stride) {
      for (std::size_t v = 0; v < kWhole; v += kLanes) hn::StoreU(hn::LoadU(d, row + i + v), d, to + v);
    }
  }
  for (; i < sides; i += kPanel, to += stride) {
    const std::size_t count = std::min(kPanel, sides - i);
    std::copy_n(row + i, count, to);
    std::fill(to + count, to + kPanel, T{0});
  }
}

/// Packs sides [first, first + sides) of rows in which the sides are contiguous. It fills few panels at a
/// time: their lines share cache sets and must stay cached.
template <std::size_t kPanel, class T>
HWY_NOINLINE void PackStraight(const PackSource& from, std::size_t first, std::size_t sides,
                               std::size_t first_depth, std::size_t depth, T* HWY_RESTRICT to) {
  constexpr std::size_t kPart = (kPanel % HWY_LANES(T) == 0 ? 4 : 8) * kPanel;
  HWY_ALIGN T staged[kPart];
  const std::size_t bytes = bytes_of(from.type);
  for (std::size_t part = 0; part < sides; part += kPart) {
    const std::size_t count = std::min(kPart, sides - part);
    for (std::size_t k = 0; k < depth; ++k) {
      const std::size_t begin = (first_depth + k) * from.ld + first + part;
      if (k + kRowsAhead < depth) {
        const auto* ahead =
            static_cast<const std::uint8_t*>(from.data) + (begin + kRowsAhead * from.ld) * bytes;
        for (std::size_t i = 0; i < count * bytes; i += 64) hwy::Prefetch(ahead + i);
      }
      const T* row = OperandRow<T>(from, begin, count, staged);
      SpreadRow<kPanel>(row, count, k + 1 == depth, to + part * depth + k * kPanel, depth * kPanel);
    }
  }
}

/// Packs sides [first, first + sides) and depth ≤ kSumBlock terms from first_depth on into ⌈sides / kPanel⌉
/// panels of [depth][kPanel], padding the last one with zeros.
template <std::size_t kPanel, class T>
void PackPanels(const PackSource& from, std::size_t first, std::size_t sides, std::size_t first_depth,
                std::size_t depth, T* to) {
  if (!from.depth_contiguous) return PackStraight<kPanel>(from, first, sides, first_depth, depth, to);
  // From the last vector of a panel to the first, so that writes beyond a vector's part are overwritten
  // later.
  constexpr std::size_t kVectors = (kPanel + HWY_LANES(T) - 1) / HWY_LANES(T);
  for (std::size_t i = 0; i < sides; i += kPanel) {
    for (std::size_t v = kVectors; v-- > 0;) {
      const std::size_t at = v * HWY_LANES(T);
      PackTransposed<kPanel>(from, first + i + at, first + sides, first_depth, depth, at, to + i * depth);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_PACK_INL_H_
