#include "mantissa/kernels/reduce.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include "mantissa/kernels/cpu/tasks.h"
#include "mantissa/kernels/cpu/update/sweep_tiling.h"
#include "mantissa/kernels/update.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/update/reduce.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/lanes-inl.h"
#include "mantissa/kernels/cpu/update/sweep_machine-inl.h"

#ifndef MANTISSA_KERNELS_CPU_REDUCE_ONCE
#define MANTISSA_KERNELS_CPU_REDUCE_ONCE
namespace mantissa::kernels {

constexpr std::size_t kRowChunk = 4096;    // elements of a row per sum over lanes
constexpr std::size_t kColumnChunk = 256;  // rows per chain

}  // namespace mantissa::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

template <class T>
HWY_INLINE void Widen(const T* row, std::size_t n, bool squares, double* to) {
  for (std::size_t i = 0; i < n; ++i) {
    const double x = static_cast<double>(row[i]);
    to[i] = squares ? x * x : x;
  }
}

/// Stores the sum of each row in sums[row].
template <class T>
class RowSink {
 public:
  RowSink(const Reduce& r, double* sums)
      : width_(static_cast<std::size_t>(r.width)), squares_(r.squares), sums_(sums) {}

  void Take(std::size_t, const T* row, const Tile& tile) {
    alignas(64) double wide[kSweepTileBytes / sizeof(T)];
    Widen(row, tile.n, squares_, wide);
    if (tile.column == 0) total_ = 0;
    chunk_.Add(wide, tile.n);
    const std::size_t end = tile.column + tile.n;
    if (end % kRowChunk == 0 || end == width_) {
      total_ += chunk_.Total();
      chunk_.Clear();
    }
    if (end == width_) sums_[tile.row] = total_;
  }
  void Stored(std::size_t, T*, const Tile&) const {}

 private:
  const std::size_t width_;
  const bool squares_;
  double* sums_;
  double total_ = 0;
  mantissa::HWY_NAMESPACE::LaneSum<double> chunk_;
};

/// Adds rows to sums[column].
template <class T>
class ColumnSink {
 public:
  ColumnSink(bool squares, double* sums) : squares_(squares), sums_(sums) {}

  void Take(std::size_t, const T* row, const Tile& tile) {
    alignas(64) double wide[kSweepTileBytes / sizeof(T)];
    Widen(row, tile.n, squares_, wide);
    AddRow(wide, tile.n, sums_ + tile.column);
  }
  void Stored(std::size_t, T*, const Tile&) const {}

 private:
  const bool squares_;
  double* sums_;
};

template <class T, class Sink>
void RunRows(const Reduce& r, const SweepTiling& t, std::size_t begin, std::size_t end, Sink sink) {
  SweepMachine<T, Sink> machine(r.program, r.inputs, {}, t, sink);
  for (std::size_t tile = begin * t.pieces; tile < end * t.pieces; ++tile) machine.RunTile(tile);
}

/// Computes sums[row] of rows [begin, end).
void SumRows(const Reduce& r, const SweepTiling& t, std::size_t begin, std::size_t end, double* sums) {
  r.arithmetic == Scalar::f64 ? RunRows<double>(r, t, begin, end, RowSink<double>(r, sums))
                              : RunRows<float>(r, t, begin, end, RowSink<float>(r, sums));
}

/// Computes sums[column] over rows [begin, end).
void SumColumns(const Reduce& r, const SweepTiling& t, std::size_t begin, std::size_t end, double* sums) {
  std::fill_n(sums, t.width, 0.0);
  r.arithmetic == Scalar::f64 ? RunRows<double>(r, t, begin, end, ColumnSink<double>(r.squares, sums))
                              : RunRows<float>(r, t, begin, end, ColumnSink<float>(r.squares, sums));
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(SumRows);
HWY_EXPORT(SumColumns);

namespace {

std::size_t column_chunks(std::int64_t rows) {
  return (static_cast<std::size_t>(rows) + kColumnChunk - 1) / kColumnChunk;
}

/// Applies mean and root to `count` sums of `terms` terms each and stores them.
void store(const Context& ctx, const Reduce& r, double* sums, std::int64_t count, std::int64_t terms) {
  for (std::int64_t i = 0; i < count; ++i) {
    if (r.mean) sums[i] /= static_cast<double>(terms);
    if (r.root) sums[i] = std::sqrt(sums[i]);
  }
  cast(ctx, count, sums, Scalar::f64, r.result, r.type);
}

void reduce_columns(const Context& ctx, const Reduce& r, const SweepTiling& t, double* sums) {
  const auto sum = HWY_DISPATCH_TABLE(SumColumns)[ctx.target()];
  const std::size_t chunks = column_chunks(r.rows);
  parallel_for(ctx, static_cast<std::int64_t>(chunks), [&](std::int64_t chunk, int) {
    const std::size_t begin = static_cast<std::size_t>(chunk) * kColumnChunk;
    sum(r, t, begin, std::min(begin + kColumnChunk, static_cast<std::size_t>(r.rows)),
        sums + static_cast<std::size_t>(chunk) * t.width);
  });
  for (std::size_t chunk = 1; chunk < chunks; ++chunk) {
    for (std::size_t j = 0; j < t.width; ++j) sums[j] += sums[chunk * t.width + j];
  }
  store(ctx, r, sums, r.width, r.rows);
}

}  // namespace

std::size_t reduce_workspace(std::int64_t rows, std::int64_t width, Over over) {
  const std::size_t sums = over == Over::each_column ? column_chunks(rows) * static_cast<std::size_t>(width)
                                                     : static_cast<std::size_t>(rows);
  return sums * sizeof(double);
}

void reduce(const Context& ctx, const Reduce& r) {
  assert(r.program.outputs == 1 && r.inputs.size() == r.program.inputs && r.inputs.size() <= kSweepInputs);
  assert(ctx.workspace_bytes >= reduce_workspace(r.rows, r.width, r.over));
  auto* sums = reinterpret_cast<double*>(ctx.workspace);
  const SweepTiling t = sweep_tiling(r.rows, r.width, false, r.arithmetic);
  if (r.over == Over::each_column) return reduce_columns(ctx, r, t, sums);
  const auto sum = HWY_DISPATCH_TABLE(SumRows)[ctx.target()];
  for_row_ranges(ctx, r.rows, r.width,
                 [&](std::size_t begin, std::size_t end) { sum(r, t, begin, end, sums); });
  if (r.over == Over::each_row) return store(ctx, r, sums, r.rows, r.width);
  double all = chunked_sum(sums, Scalar::f64, r.rows);
  store(ctx, r, &all, 1, r.rows * r.width);
}

}  // namespace mantissa::kernels
#endif
