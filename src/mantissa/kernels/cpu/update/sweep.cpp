#include "mantissa/kernels/sweep.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <mutex>
#include <vector>

#include "mantissa/kernels/cpu/tasks.h"
#include "mantissa/kernels/cpu/update/sweep_formulas.h"
#include "mantissa/kernels/cpu/update/sweep_tiling.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/update/sweep.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/update/sweep_machine-inl.h"
#include "mantissa/kernels/cpu/update/sweep_store-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

/// Stores outputs and their copies.
template <class T>
class StoreSink {
 public:
  explicit StoreSink(const Sweep& s)
      : outputs_(s.outputs), count_(static_cast<std::size_t>(s.rows * s.width)) {
    for (const SweepOutput& output : outputs_) streams_.push_back(StreamOf(s, output));
  }

  void Take(std::size_t o, const T* row, const Tile& tile) {
    const SweepOutput& output = outputs_[o];
    if (output.data == nullptr) return;
    if (output.codes != StateCodes::none) return Encode(output, row, tile);
    if (IsStoredAs<T>(output.type)) {
      StoreRow(row, tile.n, output.data, output.type, tile.offset);
    } else {
      StoreRounded(row, tile, output, output.data, tile.offset, streams_[o]);
    }
    if (output.copies.empty()) return;
    if (!IsStoredAs<T>(output.type)) {
      Stored(o, stored_, tile);
      row = stored_;
    }
    for (const PointwiseOutput& copy : output.copies)
      StoreRow(row, tile.n, copy.data, copy.type, tile.offset);
  }

  void Stored(std::size_t o, T* row, const Tile& tile) const {
    const SweepOutput& output = outputs_[o];
    if (output.data != nullptr && !IsStoredAs<T>(output.type))
      LoadRow(output.data, output.type, tile.offset, tile.n, row);
  }

 private:
  void Encode(const SweepOutput& output, const T* row, const Tile& tile) const {
    float values[kSweepTileBytes / sizeof(T)];
    for (std::size_t i = 0; i < tile.n; ++i) values[i] = static_cast<float>(row[i]);
    EncodeStates(StateOf(output.codes, output.data, count_), tile.offset, values, tile.n);
  }

  std::span<const SweepOutput> outputs_;
  const std::size_t count_;  // elements of the sweep
  std::vector<RandomStream> streams_;
  alignas(64) T stored_[kSweepTileBytes / sizeof(T)];
};

/// Checks one output and stores nothing.
template <class T>
class CheckSink {
 public:
  CheckSink(const Sweep& s, std::size_t checked)
      : output_(s.outputs[checked]), checked_(checked), stream_(StreamOf(s, output_)) {}

  void Take(std::size_t o, const T* row, const Tile& tile) {
    if (o != checked_ || found) return;
    // Rounding never moves a value that is at most the largest finite value beyond it.
    const T most = static_cast<T>(traits(output_.type).max_finite);
    if (std::all_of(row, row + tile.n, [most](T x) { return std::abs(x) <= most; })) return;
    alignas(64) std::byte stored[kSweepTileBytes];
    alignas(64) T after[kSweepTileBytes / sizeof(T)];
    StoreRounded(row, tile, output_, stored, 0, stream_);
    LoadRow(stored, output_.type, 0, tile.n, after);
    const T* bad = std::find_if(after, after + tile.n, [](T x) { return !std::isfinite(x); });
    const auto at = static_cast<std::size_t>(bad - after);
    if (at < tile.n) found = {static_cast<std::int64_t>(tile.offset + at), static_cast<double>(row[at])};
  }
  void Stored(std::size_t, T*, const Tile&) const {}

  std::optional<WeightOverflow> found;  // the first element that is not finite when stored

 private:
  const SweepOutput& output_;
  const std::size_t checked_;
  const RandomStream stream_;
};

template <class T>
void RunTiles(const Sweep& s, const SweepTiling& tiling, std::size_t begin, std::size_t end) {
  StoreSink<T> sink(s);
  SweepMachine<T, StoreSink<T>> machine(s.program, s.inputs, s.outputs, tiling, sink);
  for (std::size_t tile = begin; tile < end; ++tile) machine.RunTile(tile);
}

void SweepTiles(const Sweep& s, const SweepTiling& tiling, std::size_t begin, std::size_t end) {
  s.arithmetic == Scalar::f64 ? RunTiles<double>(s, tiling, begin, end)
                              : RunTiles<float>(s, tiling, begin, end);
}

template <class T>
std::optional<WeightOverflow> CheckTiles(const Sweep& s, const SweepTiling& tiling, std::size_t output,
                                         std::size_t begin, std::size_t end) {
  CheckSink<T> sink(s, output);
  SweepMachine<T, CheckSink<T>> machine(s.program, s.inputs, s.outputs, tiling, sink);
  for (std::size_t tile = begin; tile < end && !sink.found; ++tile) machine.RunTile(tile);
  return sink.found;
}

std::optional<WeightOverflow> CheckSweepTiles(const Sweep& s, const SweepTiling& tiling, std::size_t output,
                                              std::size_t begin, std::size_t end) {
  return s.arithmetic == Scalar::f64 ? CheckTiles<double>(s, tiling, output, begin, end)
                                     : CheckTiles<float>(s, tiling, output, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(SweepTiles);
HWY_EXPORT(CheckSweepTiles);

namespace {

[[maybe_unused]] bool has_blocks(const Sweep& s) {
  const auto blocked = [](const auto& operand) { return operand.codes != StateCodes::none; };
  return std::ranges::any_of(s.inputs, blocked) || std::ranges::any_of(s.outputs, blocked);
}

SweepTiling tiling_of(const Sweep& s) {
  assert(s.inputs.size() == s.program.inputs && s.inputs.size() <= kSweepInputs);
  assert(s.outputs.size() == s.program.outputs && s.outputs.size() <= kSweepOutputs);
  assert(!goes_by_rows(s.inputs) || !has_blocks(s));
  return sweep_tiling(s.rows, s.width, !goes_by_rows(s.inputs), s.arithmetic);
}

/// Calls body(begin, end) for ranges of tiles that cover the sweep.
template <class Body>
void for_tiles(const Context& ctx, const SweepTiling& t, const Body& body) {
  for_row_ranges(ctx, static_cast<std::int64_t>(t.tiles),
                 static_cast<std::int64_t>(std::min(t.step, t.width)), body);
}

}  // namespace

void sweep(const Context& ctx, const Sweep& s) {
  if (const CompiledSweep compiled = compiled_sweep(s, ctx.target())) {
    return for_row_ranges(ctx, s.rows * s.width, 1,
                          [&](std::size_t begin, std::size_t end) { compiled(s, begin, end); });
  }
  const auto run = HWY_DISPATCH_TABLE(SweepTiles)[ctx.target()];
  const SweepTiling t = tiling_of(s);
  for_tiles(ctx, t, [&](std::size_t begin, std::size_t end) { run(s, t, begin, end); });
}

std::optional<WeightOverflow> find_overflow(const Context& ctx, const Sweep& s, std::size_t output) {
  const auto check = HWY_DISPATCH_TABLE(CheckSweepTiles)[ctx.target()];
  const SweepTiling t = tiling_of(s);
  std::mutex found;
  std::optional<WeightOverflow> first;
  for_tiles(ctx, t, [&](std::size_t begin, std::size_t end) {
    const std::optional<WeightOverflow> here = check(s, t, output, begin, end);
    if (!here) return;
    const std::lock_guard<std::mutex> lock(found);
    if (!first || here->element < first->element) first = here;
  });
  return first;
}

}  // namespace mantissa::kernels
#endif
