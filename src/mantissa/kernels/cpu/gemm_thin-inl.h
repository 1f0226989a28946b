// Products of few rows by a matrix whose columns lie along the depth (x · Wᵀ in generation): the matrix is
// read once, transposed in registers and multiplied there, and never packed. The sums are those of the
// micro-kernel: one chain of fused multiply-adds from zero for every block, in ascending depth.
#if defined(MANTISSA_KERNELS_CPU_GEMM_THIN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_GEMM_THIN_INL_H_
#undef MANTISSA_KERNELS_CPU_GEMM_THIN_INL_H_
#else
#define MANTISSA_KERNELS_CPU_GEMM_THIN_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "mantissa/kernels/cpu/gemm_pack-inl.h"
#include "mantissa/tensor/extent.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Rows of A that a thin product has at most.
inline constexpr std::size_t kThinRows = 16;
/// Columns of C that are made at a time: one vector.
template <class T>
inline constexpr std::size_t kThinColumns = HWY_LANES(T);
/// Bytes of each row of B that are asked for ahead of their use.
inline constexpr std::size_t kThinAhead = 512;

/// B as T: element k of every column as one vector, for neighbouring k, each handed to put(k, vector).
template <class T>
struct PlainColumns {
  using Stored = T;
  static constexpr std::size_t kStep = 16 / sizeof(T);  // elements of one call
  template <class Put>
  static HWY_INLINE void Each(const T* const* columns, std::size_t k, const Put& put) {
    TransposePieces(hn::ScalableTag<T>(), columns, k, put);
  }
  static HWY_INLINE T One(const T* column, std::size_t k) { return column[k]; }
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

/// B in a 16-bit format: two neighbours are transposed as one, and taken apart after.
template <Scalar kStored, class Halves>
struct PairColumns {
  using Stored = std::uint16_t;
  static constexpr std::size_t kStep = 8;
  template <class Put>
  static HWY_INLINE void Each(const std::uint16_t* const* columns, std::size_t k, const Put& put) {
    const hn::ScalableTag<std::uint32_t> du;
    const hn::ScalableTag<float> df;
    const std::uint32_t* pairs[HWY_LANES(std::uint32_t)];
    for (std::size_t c = 0; c < HWY_LANES(std::uint32_t); ++c)
      pairs[c] = reinterpret_cast<const std::uint32_t*>(columns[c] + k);
    TransposePieces(du, pairs, 0, [&](std::size_t pair, hn::Vec<decltype(du)> v) HWY_ATTR {
      put(k + 2 * pair, Halves::Low(df, v));
      put(k + 2 * pair + 1, Halves::High(df, v));
    });
  }
  static HWY_INLINE float One(const std::uint16_t* column, std::size_t k) {
    float value = 0;
    mantissa::HWY_NAMESPACE::LoadRow<float>(column, kStored, k, 1, &value);
    return value;
  }
};
using BfloatColumns = PairColumns<Scalar::bf16, BfloatHalves>;
using HalfColumns = PairColumns<Scalar::f16, HalfHalves>;

/// out[i * ld + c] = the chain of row i and column c over one block, or that added to what is there. a is
/// [depth][kRows]; columns[c] is the block of column c.
template <std::size_t kRows, class Columns, class T>
HWY_NOINLINE void ThinBlock(std::size_t depth, const T* HWY_RESTRICT a,
                            const typename Columns::Stored* const* columns, T* HWY_RESTRICT out,
                            std::size_t ld, TileStore store) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  constexpr std::size_t kLine = 64 / sizeof(typename Columns::Stored);
  V sum[kRows];
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < kRows; ++i) sum[i] = hn::Zero(d);
  const auto put = [&](std::size_t k, V v) HWY_ATTR {
    HWY_UNROLL(16)
    for (std::size_t i = 0; i < kRows; ++i) sum[i] = hn::MulAdd(hn::Set(d, a[k * kRows + i]), v, sum[i]);
  };
  std::size_t k = 0;
  for (; k + Columns::kStep <= depth; k += Columns::kStep) {
    if (k % kLine == 0) {
      for (std::size_t c = 0; c < HWY_LANES(T); ++c)
        hwy::Prefetch(reinterpret_cast<const char*>(columns[c] + k) + kThinAhead);
    }
    Columns::Each(columns, k, put);
  }
  for (; k < depth; ++k) {
    HWY_ALIGN T last[HWY_LANES(T)];
    for (std::size_t c = 0; c < HWY_LANES(T); ++c) last[c] = Columns::One(columns[c], k);
    put(k, hn::Load(d, last));
  }
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < kRows; ++i) {
    T* to = out + i * ld;
    hn::StoreU(store == TileStore::add ? hn::Add(hn::LoadU(d, to), sum[i]) : sum[i], d, to);
  }
}

/// The same for m ≤ kThinRows rows, of which a holds thin_rows(m).
constexpr std::size_t thin_rows(std::size_t m) {
  std::size_t rows = 1;
  while (rows < m) rows *= 2;
  return rows;
}
template <class Columns, class T>
void ThinBlockOf(std::size_t rows, std::size_t depth, const T* a,
                 const typename Columns::Stored* const* columns, T* out, std::size_t ld, TileStore store) {
  switch (rows) {
    case 1:
      return ThinBlock<1, Columns, T>(depth, a, columns, out, ld, store);
    case 2:
      return ThinBlock<2, Columns, T>(depth, a, columns, out, ld, store);
    case 4:
      return ThinBlock<4, Columns, T>(depth, a, columns, out, ld, store);
    case 8:
      return ThinBlock<8, Columns, T>(depth, a, columns, out, ld, store);
    default:
      return ThinBlock<16, Columns, T>(depth, a, columns, out, ld, store);
  }
}

/// One block of the columns [column, column + count) of B, count ≤ kThinColumns; columns that are not there
/// give sums that nobody reads. B is read where it lies, or as OperandRow makes it.
template <class T>
void ThinColumnsOf(const PackSource& b, std::size_t column, std::size_t count, std::size_t k,
                   std::size_t depth, std::size_t rows, const T* a, T* out, std::size_t ld, TileStore store) {
  constexpr std::size_t kLanes = kThinColumns<T>;
  const auto place = [&](std::size_t c) { return (column + std::min(c, count - 1)) * b.ld + k; };
  if constexpr (std::is_same_v<T, float>) {
    if ((b.type == Scalar::bf16 || b.type == Scalar::f16) && Holds(b.operand, b.type)) {
      const std::uint16_t* columns[kLanes];
      for (std::size_t c = 0; c < kLanes; ++c)
        columns[c] = static_cast<const std::uint16_t*>(b.data) + place(c);
      return b.type == Scalar::bf16 ? ThinBlockOf<BfloatColumns>(rows, depth, a, columns, out, ld, store)
                                    : ThinBlockOf<HalfColumns>(rows, depth, a, columns, out, ld, store);
    }
  }
  HWY_ALIGN T staged[kLanes * static_cast<std::size_t>(kSumBlock)];
  const T* columns[kLanes];
  for (std::size_t c = 0; c < kLanes; ++c)
    columns[c] = OperandRow<T>(b, place(c), depth, staged + c * static_cast<std::size_t>(kSumBlock));
  ThinBlockOf<PlainColumns<T>>(rows, depth, a, columns, out, ld, store);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_GEMM_THIN_INL_H_
