// Products of few rows with a matrix whose columns are contiguous along the depth (x · Wᵀ in generation). The
// matrix is read once, transposed and multiplied in registers, and never packed. The sums have the bits of
// the micro-kernels, in either order.
#if defined(MANTISSA_KERNELS_CPU_GEMM_THIN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_THIN_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_THIN_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_THIN_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "mantissa/core/tensor/extent.h"
#include "mantissa/kernels/cpu/gemm/pack-inl.h"
#include "mantissa/kernels/cpu/gemm/source-inl.h"
#include "mantissa/kernels/cpu/gemm_thin/blocks-inl.h"
#include "mantissa/kernels/cpu/gemm_thin/quants-inl.h"
#include "mantissa/kernels/cpu/gemm_thin/sums-inl.h"
#include "mantissa/kernels/cpu/stream_ahead.h"
#include "mantissa/kernels/gemm.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Rows of A that are multiplied at once.
inline constexpr std::size_t kThinStrip = 16;
/// Columns of C that are computed at a time: one vector.
template <class T>
inline constexpr std::size_t kThinColumns = HWY_LANES(T);

/// A vector of columns, `stride` elements apart, at one depth. Every fourth column has a pointer, so the
/// available registers can address all of them.
template <class Stored>
class SideBySide {
 public:
  SideBySide(const Stored* first, std::size_t stride) : stride_(stride) {
    for (std::size_t i = 0; i < kFourths; ++i) fourth_[i] = first + 4 * i * stride;
  }
  HWY_INLINE const Stored* operator()(std::size_t c) const { return fourth_[c / 4] + c % 4 * stride_; }
  HWY_INLINE void Advance(std::size_t depth) {
    HWY_UNROLL(4)
    for (std::size_t i = 0; i < kFourths; ++i) fourth_[i] += depth;
  }

 private:
  static constexpr std::size_t kFourths = (HWY_LANES(float) + 3) / 4;
  const Stored* fourth_[kFourths];
  std::size_t stride_;
};

/// B as T: calls put(k, vector) with element k of every column as one vector, for neighbouring k.
template <class T>
struct PlainColumns {
  using Stored = T;
  static constexpr std::size_t kStep = 16 / sizeof(T);  // elements of one call
  template <class Put>
  static HWY_INLINE void Each(const SideBySide<T>& columns, std::size_t k, const Put& put) {
    TransposePieces(hn::ScalableTag<T>(), columns, k, put);
  }
  static HWY_INLINE T One(const T* element) { return *element; }
};

/// The 16-bit halves of vectors of pairs as f32.
struct BfloatHalves {
  template <class D>
  static HWY_INLINE hn::VFromD<D> Low(D d, hn::VFromD<hn::RebindToUnsigned<D>> v) {
    return hn::BitCast(d, hn::ShiftLeft<16>(v));
  }
  template <class D>
  static HWY_INLINE hn::VFromD<D> High(D d, hn::VFromD<hn::RebindToUnsigned<D>> v) {
    return hn::BitCast(d, hn::And(v, hn::Set(hn::RebindToUnsigned<D>(), 0xFFFF0000U)));
  }
};
struct HalfHalves {
  template <class D>
  static HWY_INLINE hn::VFromD<D> Low(D d, hn::VFromD<hn::RebindToUnsigned<D>> v) {
    const auto bits = hn::TruncateTo(hn::Rebind<std::uint16_t, D>(), v);
    return hn::PromoteTo(d, hn::BitCast(hn::Rebind<hwy::float16_t, D>(), bits));
  }
  template <class D>
  static HWY_INLINE hn::VFromD<D> High(D d, hn::VFromD<hn::RebindToUnsigned<D>> v) {
    return Low(d, hn::ShiftRight<16>(v));
  }
};

/// B in a 16-bit format: two neighbours are transposed as one element and then separated.
template <Scalar kStored, class Halves>
struct PairColumns {
  using Stored = std::uint16_t;
  static constexpr std::size_t kStep = 8;
  template <class Put>
  static HWY_INLINE void Each(const SideBySide<std::uint16_t>& columns, std::size_t k, const Put& put) {
    const hn::ScalableTag<std::uint32_t> du;
    const hn::ScalableTag<float> df;
    const auto pairs = [&](std::size_t c) { return reinterpret_cast<const std::uint32_t*>(columns(c)); };
    TransposePieces(du, pairs, 0, [&](std::size_t pair, hn::Vec<decltype(du)> v) HWY_ATTR {
      put(k + 2 * pair, Halves::Low(df, v));
      put(k + 2 * pair + 1, Halves::High(df, v));
    });
  }
  static HWY_INLINE float One(const std::uint16_t* element) {
    float value = 0;
    mantissa::HWY_NAMESPACE::LoadRow<float>(element, kStored, 0, 1, &value);
    return value;
  }
};
using BfloatColumns = PairColumns<Scalar::bf16, BfloatHalves>;
using HalfColumns = PairColumns<Scalar::f16, HalfHalves>;

/// out[i * ld + c] = the sum of row i and column c over one block, or that sum added to the previous value.
/// a is [depth][kStrip], of which kRows rows are multiplied; the block of column c starts at columns + c *
/// stride.
template <SumOrder kOrder, std::size_t kRows, std::size_t kStrip, class Columns, class T>
HWY_NOINLINE void ThinBlock(std::size_t depth, const T* HWY_RESTRICT a,
                            const typename Columns::Stored* columns, std::size_t stride, StreamAhead ahead,
                            T* HWY_RESTRICT out, std::size_t ld, TileStore store) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  ThinSums<kOrder, kRows, T> sums;
  SideBySide<typename Columns::Stored> at(columns, stride);
  std::size_t k = 0;
  for (; k + Columns::kStep <= depth; k += Columns::kStep, at.Advance(Columns::kStep)) {
    if (sums.kInBlocks && k > 0 && k % kTileBlock == 0) {
      sums.Store(out, ld, store);
      store = TileStore::add;
    }
    ahead.Ask<HWY_LANES(T) * Columns::kStep * sizeof(typename Columns::Stored)>();
    Columns::Each(at, 0, [&](std::size_t i, V v) HWY_ATTR { sums.Add(i, a + i * kStrip, v); });
    a += Columns::kStep * kStrip;
  }
  if (sums.kInBlocks && k > 0 && k < depth && k % kTileBlock == 0) {
    sums.Store(out, ld, store);
    store = TileStore::add;
  }
  for (; k < depth; ++k, at.Advance(1), a += kStrip) {
    HWY_ALIGN T last[HWY_LANES(T)];
    for (std::size_t c = 0; c < HWY_LANES(T); ++c) last[c] = Columns::One(at(c));
    sums.Add(k, a, hn::Load(d, last));
  }
  sums.Store(out, ld, store);
}

/// ThinBlock for all rows of a strip, in passes of as many as are summed at once.
template <SumOrder kOrder, std::size_t kStrip, class Columns, class T>
void ThinStrip(std::size_t depth, const T* a, const typename Columns::Stored* columns, std::size_t stride,
               StreamAhead ahead, T* out, std::size_t ld, TileStore store) {
  constexpr std::size_t kRows = thin_rows_at_once<kOrder>(kStrip);
  for (std::size_t i = 0; i < kStrip; i += kRows)
    ThinBlock<kOrder, kRows, kStrip, Columns>(depth, a + i, columns, stride, ahead, out + i * ld, ld, store);
}

/// Rows of a strip if `m` are left; missing rows are zero.
constexpr std::size_t thin_rows(std::size_t m) {
  std::size_t rows = 1;
  while (rows < m && rows < kThinStrip) rows *= 2;
  return rows;
}

/// Packs the strip of A's rows from `row` on, with `left` rows left, as [depth][thin_rows(left)].
template <class T>
void PackThin(const PackSource& a, std::size_t row, std::size_t left, std::size_t k, std::size_t depth,
              T* to) {
  const std::size_t rows = thin_rows(left), count = std::min(rows, left);
  WithThinRows(rows, [&](auto n) HWY_ATTR { PackPanels<n()>(a, row, count, k, depth, to); });
}

/// ThinStrip for a number of rows known at run time.
template <SumOrder kOrder, class Columns, class T>
void ThinBlockOf(std::size_t rows, std::size_t depth, const T* a, const typename Columns::Stored* columns,
                 std::size_t stride, StreamAhead ahead, T* out, std::size_t ld, TileStore store) {
  WithThinRows(rows, [&](auto n) HWY_ATTR {
    ThinStrip<kOrder, n(), Columns>(depth, a, columns, stride, ahead, out, ld, store);
  });
}

/// True for a column stride that maps the lines of all columns to the same few sets of the first-level cache,
/// which hold fewer than a vector of them. Such columns are copied first if there are several strips of A.
constexpr bool ThinColumnsCollide(std::size_t bytes) {
  return bytes % 2048 == 0;
}

/// One block of the columns [column, column + count) of B, count ≤ kThinColumns. Missing columns give sums
/// that are not read. Columns are read in place, as OperandRow converts them, or, if they collide or are too
/// few, from a copy; those in packed or quantized blocks are decoded while they are multiplied. Meanwhile as
/// many bytes from `ahead` on are prefetched.
template <class T>
class ThinColumns {
 public:
  ThinColumns(const PackSource& b, std::size_t column, std::size_t count, std::size_t k, std::size_t depth,
              StreamAhead ahead, bool once, SumOrder order)
      : order_(order), depth_(depth), first_(b.At(column, k)), stride_(b.ld), ahead_(ahead) {
    constexpr Scalar kPlain = std::is_same_v<T, float> ? Scalar::f32 : Scalar::f64;
    const bool pairs = std::is_same_v<T, float> && (b.type == Scalar::bf16 || b.type == Scalar::f16);
    const bool as_stored = (pairs || b.type == kPlain) && Unrounded(b);
    type_ = as_stored ? b.type : kPlain;
    if (std::is_same_v<T, float> && once && count == kLanes &&
        (IsThinPacked(b, k) || IsThinQuant(b, k, depth, order))) {
      packed_ = &b;
      column_ = column;
      k_ = k;
      return;
    }
    if (as_stored && count == kLanes && (once || !ThinColumnsCollide(b.run_bytes))) return;
    for (std::size_t c = 0; c < kLanes; ++c) {
      const std::size_t at = std::min(c, count - 1);
      T* to = staged_ + c * kBlock;
      if (as_stored) {
        std::memcpy(reinterpret_cast<std::uint8_t*>(staged_) + c * kBlock * bytes_of(type_),
                    first_ + at * b.run_bytes, depth * bytes_of(type_));
      } else if (const T* row = OperandRow<T>(b, column + at, k, depth, to); row != to) {
        std::memcpy(to, row, depth * sizeof(T));
      }
    }
    first_ = reinterpret_cast<const std::uint8_t*>(staged_);
    stride_ = kBlock;
  }

  /// Computes out[i * ld + c] like ThinBlock, for `rows` rows.
  void Multiply(std::size_t rows, const T* a, T* out, std::size_t ld, TileStore store) const {
    if constexpr (std::is_same_v<T, float>) {
      if (order_ == SumOrder::tile) return MultiplyIn<SumOrder::tile>(rows, a, out, ld, store);
    }
    MultiplyIn<SumOrder::chain>(rows, a, out, ld, store);
  }

 private:
  static constexpr std::size_t kLanes = kThinColumns<T>;
  static constexpr auto kBlock = static_cast<std::size_t>(kSumBlock);

  template <SumOrder kOrder>
  void MultiplyIn(std::size_t rows, const T* a, T* out, std::size_t ld, TileStore store) const {
    if constexpr (std::is_same_v<T, float>) {
      if (packed_ != nullptr && packed_->Quantized())
        return MultiplyThinQuant<kOrder>(rows, *packed_, column_, k_, depth_, a, ahead_, out, ld, store);
      if (packed_ != nullptr)
        return MultiplyThinPacked<kOrder>(rows, *packed_, column_, k_, depth_, a, ahead_, out, ld, store);
      if (type_ == Scalar::bf16) return MultiplyAs<kOrder, BfloatColumns>(rows, a, out, ld, store);
      if (type_ == Scalar::f16) return MultiplyAs<kOrder, HalfColumns>(rows, a, out, ld, store);
    }
    MultiplyAs<kOrder, PlainColumns<T>>(rows, a, out, ld, store);
  }

  template <SumOrder kOrder, class Columns>
  void MultiplyAs(std::size_t rows, const T* a, T* out, std::size_t ld, TileStore store) const {
    ThinBlockOf<kOrder, Columns>(rows, depth_, a, reinterpret_cast<const typename Columns::Stored*>(first_),
                                 stride_, ahead_, out, ld, store);
  }

  SumOrder order_;
  std::size_t depth_;
  const PackSource* packed_ =
      nullptr;  // columns in packed or quantized blocks, decoded while they are multiplied
  std::size_t column_ = 0, k_ = 0;  // of these
  Scalar type_ = Scalar::f32;       // the format that is read
  const std::uint8_t* first_;
  std::size_t stride_;  // elements from one column to the next
  StreamAhead ahead_;
  HWY_ALIGN T staged_[kLanes * kBlock];
};

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_THIN_INL_H_
