#include "mantissa/kernels/row_norms.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "mantissa/core/base/error.h"
#include "mantissa/kernels/cpu/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/rows/row_norms.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/lanes-inl.h"
#include "mantissa/core/numeric/quants-inl.h"
#include "mantissa/kernels/cpu/rows/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

using mantissa::HWY_NAMESPACE::LaneSum;

// A multiple of the 16 virtual lanes, so that the lane of an element does not depend on the piece.
constexpr std::size_t kNormPiece = 2048;
constexpr std::size_t kNormBlock = 256;

/// to[i] = fma(factor, from[i], to[i]).
template <class T>
HWY_INLINE void AddMultiple(T factor, const T* from, std::size_t n, T* to) {
  ForEachVector<T>(n, [&](auto d, std::size_t i) HWY_ATTR {
    hn::StoreU(hn::MulAdd(hn::Set(d, factor), hn::LoadU(d, from + i), hn::LoadU(d, to + i)), d, to + i);
  });
}

template <class T>
void StoreNorm(const RowNorms& n, std::size_t o, T squares) {
  static_cast<T*>(n.norms.data)[o] = squares > 0 ? std::sqrt(squares) : std::numeric_limits<T>::min();
}

/// Loads inputs [c, c + count) of output o from blocks.
inline void LoadBlocks(const RowNorms& n, std::size_t o, std::size_t c, std::size_t count, float* to) {
  const QuantRows rows =
      n.quants->rows_of(n.weight.data, n.transposed ? n.in : n.out, n.transposed ? n.out : n.in);
  mantissa::HWY_NAMESPACE::DequantizeRow(rows, o, c, count, to);
  if (!holds(n.weight.type, Scalar::f32)) RoundRow(to, count, n.weight.type);
}

/// The inputs of outputs [c, c + width) from blocks, [in, width].
inline std::vector<float> ColumnsOfBlocks(const RowNorms& n, std::size_t c, std::size_t width) {
  const auto in = static_cast<std::size_t>(n.in);
  std::vector<float> columns(in * width), output(in);
  for (std::size_t j = 0; j < width; ++j) {
    LoadBlocks(n, c + j, 0, in, output.data());
    for (std::size_t i = 0; i < in; ++i) columns[i * width + j] = output[i];
  }
  return columns;
}

template <class T>
void NormOfRow(const RowNorms& n, std::size_t o) {
  alignas(64) T row[kNormPiece], a_buffer[kNormPiece];
  const auto in = static_cast<std::size_t>(n.in), rank = static_cast<std::size_t>(n.rank);
  std::vector<T> b(rank);
  LoadRow(n.b.data, n.b.type, o * static_cast<std::size_t>(n.b.ld), rank, b.data());
  for (T& x : b) x *= static_cast<T>(n.scale);
  LaneSum<T> squares;
  squares.Clear();
  for (std::size_t c = 0; c < in; c += kNormPiece) {
    const std::size_t count = std::min(kNormPiece, in - c);
    if constexpr (std::is_same_v<T, float>) {
      if (n.quants) LoadBlocks(n, o, c, count, row);
    }
    if (!n.quants)
      LoadRow(n.weight.data, n.weight.type, o * static_cast<std::size_t>(n.weight.ld) + c, count, row);
    for (std::size_t k = 0; k < rank; ++k) {
      const std::size_t at = k * static_cast<std::size_t>(n.a.ld) + c;
      AddMultiple(b[k], ViewRow<T>(n.a.data, n.a.type, at, count, a_buffer), count, row);
    }
    squares.AddProduct(row, row, count);
  }
  StoreNorm(n, o, squares.Total());
}

/// The norms of columns [c, c + width) of a transposed weight.
template <class T>
void NormsOfColumns(const RowNorms& n, std::size_t c, std::size_t width) {
  const auto in = static_cast<std::size_t>(n.in), rank = static_cast<std::size_t>(n.rank);
  std::vector<T> a(rank * in), b(rank), b_columns(rank * width), row(width), chain(width), sum(width);
  for (std::size_t k = 0; k < rank; ++k) {
    LoadRow(n.a.data, n.a.type, k * static_cast<std::size_t>(n.a.ld), in, a.data() + k * in);
  }
  for (T& x : a) x *= static_cast<T>(n.scale);
  for (std::size_t j = 0; j < width; ++j) {
    LoadRow(n.b.data, n.b.type, (c + j) * static_cast<std::size_t>(n.b.ld), rank, b.data());
    for (std::size_t k = 0; k < rank; ++k) b_columns[k * width + j] = b[k];
  }
  const std::vector<float> blocks = n.quants ? ColumnsOfBlocks(n, c, width) : std::vector<float>();
  for (std::size_t i = 0; i < in; ++i) {
    if (n.quants) {
      std::copy_n(blocks.data() + i * width, width, row.data());
    } else {
      LoadRow(n.weight.data, n.weight.type, i * static_cast<std::size_t>(n.weight.ld) + c, width, row.data());
    }
    for (std::size_t k = 0; k < rank; ++k)
      AddMultiple(a[k * in + i], b_columns.data() + k * width, width, row.data());
    ForEachVector<T>(width, [&](auto d, std::size_t j) HWY_ATTR {
      const auto x = hn::LoadU(d, row.data() + j);
      hn::StoreU(hn::MulAdd(x, x, hn::LoadU(d, chain.data() + j)), d, chain.data() + j);
    });
    if ((i + 1) % kNormBlock != 0 && i + 1 != in) continue;
    AddRow(chain.data(), width, sum.data());
    std::fill(chain.begin(), chain.end(), T{0});
  }
  for (std::size_t j = 0; j < width; ++j) StoreNorm(n, c + j, sum[j]);
}

template <class T>
void NormRange(const RowNorms& n, std::size_t first, std::size_t count) {
  if (n.transposed) return NormsOfColumns<T>(n, first, count);
  for (std::size_t o = first; o < first + count; ++o) NormOfRow<T>(n, o);
}

void Norms(const RowNorms& n, std::size_t first, std::size_t count) {
  n.norms.type == Scalar::f64 ? NormRange<double>(n, first, count) : NormRange<float>(n, first, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(Norms);

void row_norms(const Context& ctx, const RowNorms& n) {
  if (n.quants && (n.quants->transposed != n.transposed || n.norms.type != Scalar::f32))
    throw InternalError("row_norms: blocks are read in f32, along the inputs");
  const auto norms = HWY_DISPATCH_TABLE(Norms)[ctx.target()];
  for_column_ranges(ctx, n.out, n.in * (n.rank + 1),
                    [&](std::size_t first, std::size_t count) { norms(n, first, count); });
}

}  // namespace mantissa::kernels
#endif
