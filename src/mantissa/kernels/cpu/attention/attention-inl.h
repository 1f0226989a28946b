// Shared parts of the forward and backward attention kernels: rows in the arithmetic type, transposed query
// tiles, and a matrix product that reads its left operand in place, by rows or by columns.
//
// Scores are stored transposed, [keys][queries]: a vector holds one key's scores for neighbouring queries.
// The softmax then needs no sum across a vector, and Sᵀ = K·Qᵀ, O = P·V, dPᵀ = V·dOᵀ, dV = Pᵀ·dO, dK = dSᵀ·Q
// and dQ = dS·K all read K, V, Q, dO, P and dS in their stored order. Only the query tiles Qᵀ and dOᵀ are
// transposed, once. The packed panels of the GEMM's microkernel would need P and dS transposed as well; only
// its tile sizes are used.
#if defined(MANTISSA_KERNELS_CPU_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_ATTENTION_INL_H_
#undef MANTISSA_KERNELS_CPU_ATTENTION_INL_H_
#else
#define MANTISSA_KERNELS_CPU_ATTENTION_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>

#include "mantissa/core/numeric/convert-inl.h"
#include "mantissa/core/numeric/factor-inl.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/cpu/attention/layout.h"
#include "mantissa/kernels/cpu/gemm/microkernel-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace attention_parts {
namespace hn = hwy::HWY_NAMESPACE;

using namespace attention_layout;  // NOLINT(google-build-using-namespace): the other half of this namespace
using mantissa::HWY_NAMESPACE::FactorRow;
using mantissa::HWY_NAMESPACE::LoadRow;
using mantissa::HWY_NAMESPACE::RoundRow;
using mantissa::HWY_NAMESPACE::StoreRow;

static_assert(kNr<float> <= kWidestTile && kNr<double> <= kWidestTile);

/// The destination of a product: C = chain, a chain that continues from C, or C = C + chain.
enum class Into { set, extend, add };

/// The layout of the left operand: element (i, k) is a[i * stride + k] or a[k * stride + i].
enum class Left { rows, columns };

/// C[kRows, kVectors] from A[kRows, depth] · B[depth, kVectors]: each element is one FMA chain in ascending
/// depth.
template <Left kLeft, std::size_t kRows, std::size_t kVectors, class T>
HWY_NOINLINE void ProductTile(const T* HWY_RESTRICT a, std::size_t a_stride, const T* HWY_RESTRICT b,
                              std::size_t b_stride, std::size_t depth, T* HWY_RESTRICT c,
                              std::size_t c_stride, Into into) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  hn::Vec<decltype(d)> sum[kRows][kVectors];
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < kRows; ++i) {
    HWY_UNROLL(2)
    for (std::size_t j = 0; j < kVectors; ++j) {
      sum[i][j] = into == Into::extend ? hn::LoadU(d, c + i * c_stride + j * lanes) : hn::Zero(d);
    }
  }
  for (std::size_t k = 0; k < depth; ++k) {
    hn::Vec<decltype(d)> right[kVectors];
    HWY_UNROLL(2)
    for (std::size_t j = 0; j < kVectors; ++j) right[j] = hn::LoadU(d, b + k * b_stride + j * lanes);
    HWY_UNROLL(16)
    for (std::size_t i = 0; i < kRows; ++i) {
      const auto left = hn::Set(d, kLeft == Left::rows ? a[i * a_stride + k] : a[k * a_stride + i]);
      HWY_UNROLL(2)
      for (std::size_t j = 0; j < kVectors; ++j) sum[i][j] = hn::MulAdd(left, right[j], sum[i][j]);
    }
  }
  HWY_UNROLL(16)
  for (std::size_t i = 0; i < kRows; ++i) {
    HWY_UNROLL(2)
    for (std::size_t j = 0; j < kVectors; ++j) {
      T* to = c + i * c_stride + j * lanes;
      hn::StoreU(into == Into::add ? hn::Add(hn::LoadU(d, to), sum[i][j]) : sum[i][j], d, to);
    }
  }
}

/// All columns of kRows rows: pairs of vectors, then a single one.
template <Left kLeft, std::size_t kRows, class T>
void ProductRows(const T* a, std::size_t a_stride, const T* b, std::size_t b_stride, std::size_t columns,
                 std::size_t depth, T* c, std::size_t c_stride, Into into) {
  const std::size_t lanes = hn::Lanes(hn::ScalableTag<T>());
  std::size_t j = 0;
  for (; j + lanes < columns; j += 2 * lanes) {
    ProductTile<kLeft, kRows, 2>(a, a_stride, b + j, b_stride, depth, c + j, c_stride, into);
  }
  if (j < columns) ProductTile<kLeft, kRows, 1>(a, a_stride, b + j, b_stride, depth, c + j, c_stride, into);
}

/// C[rows, columns] from A[rows, depth] · B[depth, columns], for rows ≤ kMr. Rows of B and C must be readable
/// and writable up to whole vectors.
template <Left kLeft, class T>
void Product(std::size_t rows, const T* a, std::size_t a_stride, const T* b, std::size_t b_stride,
             std::size_t columns, std::size_t depth, T* c, std::size_t c_stride, Into into) {
  const std::size_t step = kLeft == Left::rows ? a_stride : 1;
  const auto some = [&]<std::size_t kRows>() HWY_ATTR {
    while (rows >= kRows) {
      ProductRows<kLeft, kRows>(a, a_stride, b, b_stride, columns, depth, c, c_stride, into);
      rows -= kRows;
      a += kRows * step;
      c += kRows * c_stride;
    }
  };
  some.template operator()<kMr>();
  if constexpr (kMr > 8) some.template operator()<8>();
  some.template operator()<4>();
  some.template operator()<2>();
  some.template operator()<1>();
}

/// An operand of a product in parts, whose planes are `plane` elements apart.
template <class T>
struct Planes {
  const T* first;
  std::size_t plane;
  Planes from(std::size_t offset) const { return {first + offset, plane}; }
  const T* part(int i) const { return first + static_cast<std::size_t>(i) * plane; }
};

/// The product of operands in `parts` parts, smallest terms first (core/numeric/factor.h). Each product of
/// parts continues the previous chain or is added.
template <Left kLeft, class T>
void ProductOfParts(int parts, std::size_t rows, Planes<T> a, std::size_t a_stride, Planes<T> b,
                    std::size_t b_stride, std::size_t columns, std::size_t depth, T* c, std::size_t c_stride,
                    Into into) {
  for (int sum = parts - 1; sum >= 0; --sum) {
    for (int i = sum; i >= 0; --i) {
      Product<kLeft>(rows, a.part(i), a_stride, b.part(sum - i), b_stride, columns, depth, c, c_stride, into);
      if (into == Into::set) into = Into::extend;
    }
  }
}

/// True if an operand stored as `type` must be rounded or split.
inline bool Rounds(const Factor& factor, Scalar type) {
  return factor.parts > 1 || !holds(factor.format, type);
}

/// Splits row[0, n) into its parts: part i is written i planes further, the first part in place.
template <class T>
void SplitRow(T* row, std::size_t n, std::size_t plane, const Factor& factor) {
  for (int i = factor.parts - 1; i >= 0; --i) {
    T* part = row + static_cast<std::size_t>(i) * plane;
    if (i > 0) std::copy_n(row, n, part);
    FactorRow<T>(part, n, factor, i);
  }
}

/// Rows of a head are short and far apart, so the hardware does not prefetch them. Software prefetches this
/// many rows ahead, into the second-level cache.
inline constexpr std::size_t kHeadRowsAhead = 24;

/// Loads rows [first, first + rows) of a head, whose columns start at `column`, into
/// to[rows][padded(head_dim)] with zeros in the padding. Returns true if all values are finite or `asks` is
/// false.
template <class T>
bool LoadHead(const ConstMatrix& from, std::size_t first, std::size_t rows, std::size_t column,
              std::size_t head_dim, T* to, bool asks = true) {
  const hn::ScalableTag<T> d;
  const std::size_t stride = padded(head_dim), lanes = hn::Lanes(d), size = bytes_of(from.type);
  const auto place = [&](std::size_t i) { return (first + i) * static_cast<std::size_t>(from.ld) + column; };
  const auto prefetch = [&](std::size_t i) {
    const auto* row = static_cast<const std::uint8_t*>(from.data) + place(i) * size;
    for (std::size_t j = 0; j < head_dim * size; j += 64) __builtin_prefetch(row + j, 0, 2);
  };
  for (std::size_t i = 0; i < std::min(rows, kHeadRowsAhead); ++i) prefetch(i);
  auto taint = hn::Zero(d);  // x − x is NaN if x is not finite, else zero
  for (std::size_t i = 0; i < rows; ++i, to += stride) {
    if (i + kHeadRowsAhead < rows) prefetch(i + kHeadRowsAhead);
    LoadRow<T>(from.data, from.type, place(i), head_dim, to);
    std::fill(to + head_dim, to + stride, T{0});
    for (std::size_t j = 0; asks && j < stride; j += lanes) {
      const auto x = hn::LoadU(d, to + j);
      taint = hn::Add(taint, hn::Sub(x, x));
    }
  }
  return hn::AllTrue(d, hn::Eq(taint, hn::Zero(d)));
}

/// True if all of values[0, n) are finite. n is a multiple of the vector's lanes.
template <class T>
bool AllFinite(const T* values, std::size_t n) {
  const hn::ScalableTag<T> d;
  auto taint = hn::Zero(d);  // x − x is NaN if x is not finite, else zero
  for (std::size_t i = 0; i < n; i += hn::Lanes(d)) {
    const auto x = hn::LoadU(d, values + i);
    taint = hn::Add(taint, hn::Sub(x, x));
  }
  return hn::AllTrue(d, hn::Eq(taint, hn::Zero(d)));
}

/// LoadHead() of an operand, which is rounded or split into parts `plane` elements apart if its format asks
/// for it. Returns true if all values are finite and stay so, or if `asks` is false.
template <class T>
bool LoadOperand(const ConstMatrix& from, std::size_t first, std::size_t rows, std::size_t column,
                 std::size_t head_dim, T* to, std::size_t plane, const Factor& factor, bool asks = true) {
  const bool finite = LoadHead<T>(from, first, rows, column, head_dim, to, asks);
  if (!Rounds(factor, from.type)) return finite;
  const std::size_t n = rows * padded(head_dim);
  SplitRow(to, n, plane, factor);
  return finite && (!asks || AllFinite(to, n));
}

/// to[column][width] = from[width][column], in 4 × 4 tiles (2 × 2 in double) of 128-bit vectors. `width` and
/// `columns` are multiples of the vector's lanes.
template <class T>
void Transpose(const T* from, std::size_t from_stride, std::size_t columns, std::size_t width, T* to,
               std::size_t to_stride) {
  const hn::Full128<T> d;
  for (std::size_t i = 0; i < width; i += hn::Lanes(d)) {
    for (std::size_t j = 0; j < columns; j += hn::Lanes(d)) {
      const T* in = from + i * from_stride + j;
      T* out = to + j * to_stride + i;
      const auto r0 = hn::LoadU(d, in), r1 = hn::LoadU(d, in + from_stride);
      if constexpr (sizeof(T) == 8) {
        hn::StoreU(hn::InterleaveLower(d, r0, r1), d, out);
        hn::StoreU(hn::InterleaveUpper(d, r0, r1), d, out + to_stride);
      } else {
        const auto r2 = hn::LoadU(d, in + 2 * from_stride), r3 = hn::LoadU(d, in + 3 * from_stride);
        const auto low02 = hn::InterleaveLower(d, r0, r2), low13 = hn::InterleaveLower(d, r1, r3);
        const auto high02 = hn::InterleaveUpper(d, r0, r2), high13 = hn::InterleaveUpper(d, r1, r3);
        hn::StoreU(hn::InterleaveLower(d, low02, low13), d, out);
        hn::StoreU(hn::InterleaveUpper(d, low02, low13), d, out + to_stride);
        hn::StoreU(hn::InterleaveLower(d, high02, high13), d, out + 2 * to_stride);
        hn::StoreU(hn::InterleaveUpper(d, high02, high13), d, out + 3 * to_stride);
      }
    }
  }
}

}  // namespace attention_parts
}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif
