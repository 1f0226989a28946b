#include "mantissa/kernels/loss_count.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <type_traits>
#include <vector>

#include "mantissa/kernels/cpu/tasks.h"
#include "mantissa/kernels/cpu/update/sweep_tiling.h"
#include "mantissa/kernels/expression.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/head/loss_count.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/head/loss_count-inl.h"
#include "mantissa/kernels/cpu/rows/rows-inl.h"
#include "mantissa/kernels/cpu/update/sweep_machine-inl.h"
#include "mantissa/kernels/cpu/update/sweep_store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

constexpr std::size_t kPiece = 1024;  // elements per row buffer

/// Marks the elements of a tile whose stored value a sweep leaves as it is.
template <class T>
class UnmovedSink {
 public:
  UnmovedSink(const Sweep& s, std::size_t counted)
      : output_(s.outputs[counted]), counted_(counted), stream_(StreamOf(s, output_)) {}

  void Take(std::size_t o, const T* row, const Tile& tile) {
    if (o != counted_) return;
    alignas(64) std::byte stored[kSweepTileBytes];
    alignas(64) T after[kSweepTileBytes / sizeof(T)];
    if (IsStoredAs<T>(output_.type)) {  // most tiles have no such element
      const T* was = ViewRow<T>(output_.data, output_.type, tile.offset, tile.n, before);
      std::int32_t equal = 0;
      for (std::size_t i = 0; i < tile.n; ++i) equal += row[i] == was[i] ? 1 : 0;
      any = equal > 0;
      if (!any) return;
    }
    LoadRow(output_.data, output_.type, tile.offset, tile.n, before);
    const T* now = row;
    if (!IsStoredAs<T>(output_.type)) {
      StoreRounded(row, tile, output_, stored, 0, stream_);
      LoadRow(stored, output_.type, 0, tile.n, after);
      now = after;
    }
    any = false;
    for (std::size_t i = 0; i < tile.n; ++i) {
      same[i] = now[i] == before[i];
      any |= same[i];
    }
  }
  void Stored(std::size_t, T*, const Tile&) const {}

  bool any = false;  // an element of the last tile is marked
  bool same[kSweepTileBytes / sizeof(T)];
  alignas(64) T before[kSweepTileBytes / sizeof(T)];

 private:
  const SweepOutput& output_;
  const std::size_t counted_;
  const RandomStream stream_;
};

/// Keeps one output's values of the last tile.
class ValueSink {
 public:
  explicit ValueSink(std::size_t kept) : kept_(kept) {}
  void Take(std::size_t o, const double* row, const Tile& tile) {
    if (o == kept_) std::copy_n(row, tile.n, values);
  }
  void Stored(std::size_t, double*, const Tile&) const {}

  alignas(64) double values[kSweepTileBytes / sizeof(double)];

 private:
  const std::size_t kept_;
};

template <class T>
UnmovedCount CountTiles(const Sweep& s, std::span<const PointwiseInput> undecayed, const SweepTiling& tiling,
                        std::size_t output, std::size_t begin, std::size_t end) {
  UnmovedSink<T> unmoved(s, output);
  ValueSink exact(output);
  // Nothing is stored, so no input is overwritten; the outputs are needed only for that.
  SweepMachine<T, UnmovedSink<T>> machine(s.program, s.inputs, {}, tiling, unmoved);
  const Expression unrounded_program = unrounded(s.program);
  SweepMachine<double, ValueSink> wide(unrounded_program, undecayed, {}, tiling, exact);
  UnmovedCount count;
  for (std::size_t tile = begin; tile < end; ++tile) {
    machine.RunTile(tile);
    if (!unmoved.any) continue;
    wide.RunTile(tile);
    const std::size_t n = std::min(tiling.step, tiling.width - tile % tiling.pieces * tiling.step);
    for (std::size_t i = 0; i < n; ++i) {
      if (!unmoved.same[i]) continue;
      ++(exact.values[i] == static_cast<double>(unmoved.before[i]) ? count.idle : count.lost);
    }
  }
  return count;
}

UnmovedCount CountUnmovedTiles(const Sweep& s, std::span<const PointwiseInput> undecayed,
                               const SweepTiling& tiling, std::size_t output, std::size_t begin,
                               std::size_t end) {
  return s.arithmetic == Scalar::f64 ? CountTiles<double>(s, undecayed, tiling, output, begin, end)
                                     : CountTiles<float>(s, undecayed, tiling, output, begin, end);
}

template <class T>
RangeCount CountLosses(const T* contribution, const void* gradient, Scalar type, bool accumulate,
                       std::size_t begin, std::size_t end) {
  alignas(64) T sum[kPiece], after[kPiece];
  alignas(64) std::byte stored[kPiece * sizeof(T)];
  RangeCount count;
  for (std::size_t i = begin; i < end; i += kPiece) {
    const std::size_t n = std::min(kPiece, end - i);
    if (accumulate) {
      LoadRow(gradient, type, i, n, sum);
      AddRow(contribution + i, n, sum);
    } else {
      std::copy_n(contribution + i, n, sum);
    }
    StoreRow(sum, n, stored, type, 0);
    LoadRow(stored, type, 0, n, after);
    const RangeCount part = CountRange(sum, after, n, type);
    count.flushed += part.flushed;
    count.saturated += part.saturated;
  }
  return count;
}

RangeCount CountGradientLosses(const void* contribution, Scalar contribution_type, const void* gradient,
                               Scalar type, bool accumulate, std::size_t begin, std::size_t end) {
  return contribution_type == Scalar::f64
             ? CountLosses(static_cast<const double*>(contribution), gradient, type, accumulate, begin, end)
             : CountLosses(static_cast<const float*>(contribution), gradient, type, accumulate, begin, end);
}

template <class T>
std::int64_t CountBeyond(const void* values, Scalar type, T limit, std::size_t begin, std::size_t end) {
  alignas(64) T buffer[kPiece];
  std::int64_t count = 0;
  for (std::size_t i = begin; i < end; i += kPiece) {
    const std::size_t n = std::min(kPiece, end - i);
    const T* x = ViewRow<T>(values, type, i, n, buffer);
    for (std::size_t e = 0; e < n; ++e) count += std::isfinite(x[e]) && std::abs(x[e]) > limit;
  }
  return count;
}

std::int64_t CountBeyondElements(const void* values, Scalar type, double limit, std::size_t begin,
                                 std::size_t end) {
  return type == Scalar::f64 ? CountBeyond<double>(values, type, limit, begin, end)
                             : CountBeyond<float>(values, type, static_cast<float>(limit), begin, end);
}

template <class T>
std::int64_t CountEqual(const void* a, Scalar a_type, const void* b, Scalar b_type, std::size_t begin,
                        std::size_t end) {
  alignas(64) T left[kPiece], right[kPiece];
  std::int64_t count = 0;
  for (std::size_t i = begin; i < end; i += kPiece) {
    const std::size_t n = std::min(kPiece, end - i);
    const T *x = ViewRow<T>(a, a_type, i, n, left), *y = ViewRow<T>(b, b_type, i, n, right);
    for (std::size_t e = 0; e < n; ++e) count += x[e] == y[e];
  }
  return count;
}

std::int64_t CountEqualElements(const void* a, Scalar a_type, const void* b, Scalar b_type, std::size_t begin,
                                std::size_t end) {
  return a_type == Scalar::f64 || b_type == Scalar::f64 ? CountEqual<double>(a, a_type, b, b_type, begin, end)
                                                        : CountEqual<float>(a, a_type, b, b_type, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(CountUnmovedTiles);
HWY_EXPORT(CountGradientLosses);
HWY_EXPORT(CountBeyondElements);
HWY_EXPORT(CountEqualElements);

UnmovedCount count_unmoved(const Context& ctx, const Sweep& s, std::size_t output,
                           std::optional<DecayInput> decay) {
  std::vector<PointwiseInput> undecayed(s.inputs.begin(), s.inputs.end());
  if (decay) undecayed[decay->input] = {&decay->undecayed, Scalar::f64, Broadcast::everywhere};
  const auto run = HWY_DISPATCH_TABLE(CountUnmovedTiles)[ctx.target()];
  // Tiles of f64 hold half as many elements as tiles of f32, so both kinds of machine can run them.
  const SweepTiling t = sweep_tiling(s.rows, s.width, !goes_by_rows(s.inputs), Scalar::f64);
  std::atomic<std::int64_t> lost = 0, idle = 0;
  for_row_ranges(ctx, static_cast<std::int64_t>(t.tiles),
                 static_cast<std::int64_t>(std::min(t.step, t.width)),
                 [&](std::size_t begin, std::size_t end) {
                   const UnmovedCount part = run(s, undecayed, t, output, begin, end);
                   lost += part.lost;
                   idle += part.idle;
                 });
  return {lost, idle};
}

RangeCount count_gradient_losses(const Context& ctx, std::int64_t count, const void* contribution,
                                 Scalar contribution_type, const void* gradient, Scalar gradient_type,
                                 bool accumulate) {
  const auto run = HWY_DISPATCH_TABLE(CountGradientLosses)[ctx.target()];
  std::atomic<std::int64_t> flushed = 0, saturated = 0;
  for_row_ranges(ctx, count, 1, [&](std::size_t begin, std::size_t end) {
    const RangeCount part =
        run(contribution, contribution_type, gradient, gradient_type, accumulate, begin, end);
    flushed += part.flushed;
    saturated += part.saturated;
  });
  return {flushed, saturated};
}

std::int64_t count_beyond(const Context& ctx, std::int64_t count, const void* values, Scalar type,
                          double limit) {
  const auto run = HWY_DISPATCH_TABLE(CountBeyondElements)[ctx.target()];
  std::atomic<std::int64_t> beyond = 0;
  for_row_ranges(ctx, count, 1,
                 [&](std::size_t begin, std::size_t end) { beyond += run(values, type, limit, begin, end); });
  return beyond;
}

std::int64_t count_equal(const Context& ctx, std::int64_t count, const void* a, Scalar a_type, const void* b,
                         Scalar b_type) {
  const auto run = HWY_DISPATCH_TABLE(CountEqualElements)[ctx.target()];
  std::atomic<std::int64_t> equal = 0;
  for_row_ranges(ctx, count, 1,
                 [&](std::size_t begin, std::size_t end) { equal += run(a, a_type, b, b_type, begin, end); });
  return equal;
}

}  // namespace mantissa::kernels
#endif
