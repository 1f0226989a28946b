#include "mantissa/kernels/sweep.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <mutex>
#include <type_traits>
#include <vector>

#include "mantissa/kernels/cpu/sweep_formulas.h"
#include "mantissa/kernels/cpu/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/sweep.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/instruction-inl.h"
#include "mantissa/kernels/cpu/rows-inl.h"
#include "mantissa/numeric/stochastic-inl.h"

#ifndef MANTISSA_KERNELS_CPU_SWEEP_ONCE
#define MANTISSA_KERNELS_CPU_SWEEP_ONCE
namespace mantissa::kernels {

constexpr std::size_t kSweepRegisters = 16, kSweepInputs = 16, kSweepOutputs = 4;
constexpr std::size_t kSweepTileBytes = 2048;  // of one register: all of a program's lie in the nearest cache

/// The elements in tiles of at most `step`, each within a row of `width`.
struct SweepTiling {
  std::size_t width = 0, step = 0, pieces = 0, tiles = 0;
};

}  // namespace mantissa::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

/// Which inputs must be read into memory of their own, because their own is written before their last use.
struct Overwritten {
  explicit Overwritten(const Sweep& s) {
    bool written[kSweepInputs] = {};
    int held[kSweepRegisters];  // the input that a register is a view of; -1: none
    std::fill_n(held, kSweepRegisters, -1);
    for (const Instruction& in : s.program.code) {
      if (in.op == Opcode::load) {
        held[in.dst] = in.index;
        continue;
      }
      if (in.op != Opcode::constant) {
        for (const std::uint8_t r : {in.a, in.b, in.c}) {
          if (held[r] >= 0 && written[held[r]]) input[held[r]] = true;
        }
      }
      if (in.op == Opcode::store || in.op == Opcode::move) {
        for (std::size_t k = 0; k < s.inputs.size(); ++k)
          written[k] = written[k] || s.inputs[k].data == s.outputs[in.index].data;
      }
      if (in.op != Opcode::store) held[in.dst] = -1;
    }
  }
  bool input[kSweepInputs] = {};
};

/// Runs a program tile by tile; where `kChecks`, stores nothing and looks at one output instead.
template <class T, bool kChecks>
class SweepMachine {
 public:
  SweepMachine(const Sweep& s, const SweepTiling& tiling, std::size_t checked)
      : s_(s), tiling_(tiling), overwritten_(s), checked_(checked) {
    for (const Instruction& in : s.program.code) {
      if (in.op == Opcode::load) read_[in.index] = true;
    }
    for (std::size_t k = 0; k < s.inputs.size(); ++k) {
      if (read_[k] && s.inputs[k].broadcast == Broadcast::everywhere) Fill(k, 0);
    }
    for (const SweepOutput& output : s.outputs)
      streams_.emplace_back(s.key.seed, output.random, s.key.name_hash, s.key.step);
  }

  void RunTile(std::size_t tile) {
    row_ = tile / tiling_.pieces;
    column_ = tile % tiling_.pieces * tiling_.step;
    offset_ = row_ * tiling_.width + column_;
    n_ = std::min(tiling_.step, tiling_.width - column_);
    padded_ = (n_ + kPadding - 1) / kPadding * kPadding;
    for (std::size_t k = 0; k < s_.inputs.size(); ++k) {
      if (read_[k]) View(k);
    }
    for (const Instruction& in : s_.program.code) Run(in);
  }

  /// The first element that would not be finite, of all tiles so far.
  const std::optional<WeightOverflow>& found() const { return found_; }

 private:
  static constexpr std::size_t kTile = kSweepTileBytes / sizeof(T);

  void Fill(std::size_t k, std::size_t element) {
    T number;
    LoadRow(s_.inputs[k].data, s_.inputs[k].type, element, 1, &number);
    std::fill_n(loaded_[k], kPadding, number);
    inputs_[k] = {loaded_[k], 0};
  }

  void View(std::size_t k) {
    const PointwiseInput& input = s_.inputs[k];
    if (input.broadcast == Broadcast::everywhere) return;
    if (input.broadcast == Broadcast::over_columns) return Fill(k, row_);
    const std::size_t at = input.broadcast == Broadcast::over_rows ? column_ : offset_;
    const auto* next = static_cast<const std::byte*>(input.data) + (at + n_) * bytes_of(input.type);
    for (std::size_t line = 0; line < n_ * bytes_of(input.type); line += 64)
      __builtin_prefetch(next + line, 0, 2);
    if (n_ == padded_ && !overwritten_.input[k]) {
      inputs_[k] = {ViewRow(input.data, input.type, at, n_, loaded_[k]), 1};
      return;
    }
    LoadRow(input.data, input.type, at, n_, loaded_[k]);
    std::fill(loaded_[k] + n_, loaded_[k] + padded_, T{0});
    inputs_[k] = {loaded_[k], 1};
  }

  void Run(const Instruction& in) {
    if (in.op == Opcode::load) {
      registers_[in.dst] = inputs_[in.index];
    } else if (in.op == Opcode::store) {
      Store(in.index, Whole(registers_[in.a]));
    } else if (in.op == Opcode::move) {
      Map(padded_, registers_[in.a], registers_[in.b], own_[in.dst],
          [](auto x, auto y) HWY_ATTR { return hn::Add(x, y); });
      Store(in.index, own_[in.dst]);
      const SweepOutput& output = s_.outputs[in.index];
      if (!kChecks && !IsStoredAs<T>(output.type))
        LoadRow(output.data, output.type, offset_, n_, own_[in.dst]);
      registers_[in.dst] = {own_[in.dst], 1};
    } else {
      Compute<T>(in, padded_, registers_[in.a], registers_[in.b], registers_[in.c], own_[in.dst]);
      registers_[in.dst] = {own_[in.dst], 1};
    }
  }

  /// The row of a register, where it is one number too.
  const T* Whole(Spread<T> r) {
    if (r.step == 1) return r.data;
    std::fill_n(after_, padded_, *r.data);
    return after_;
  }

  void Store(std::size_t o, const T* row) {
    if constexpr (kChecks) {
      if (o == checked_) Check(row);
      return;
    }
    const SweepOutput& output = s_.outputs[o];
    if (output.data == nullptr) return;
    StoreRounded(row, output, output.data, offset_, streams_[o]);
    if (output.copies.empty()) return;
    if (!IsStoredAs<T>(output.type)) {
      LoadRow(output.data, output.type, offset_, n_, after_);
      row = after_;
    }
    for (const PointwiseOutput& copy : output.copies) StoreRow(row, n_, copy.data, copy.type, offset_);
  }

  /// The tile's row into `to`, from element `at` on.
  void StoreRounded(const T* row, const SweepOutput& output, void* to, std::size_t at,
                    const RandomStream& stream) {
    if constexpr (std::is_same_v<T, float>) {
      mantissa::HWY_NAMESPACE::StoreRowRounded(row, n_, to, output.type, at, output.rounding, stream,
                                               offset_);
    } else {
      StoreRow(row, n_, to, output.type, at);
    }
  }

  void Check(const T* row) {
    const SweepOutput& output = s_.outputs[checked_];
    if (found_) return;
    // No rounding takes a value beyond the largest finite one that is not beyond it already.
    const T most = static_cast<T>(traits(output.type).max_finite);
    if (std::all_of(row, row + n_, [most](T x) { return std::abs(x) <= most; })) return;
    alignas(64) std::byte stored[kSweepTileBytes];
    StoreRounded(row, output, stored, 0, streams_[checked_]);
    LoadRow(stored, output.type, 0, n_, after_);
    const T* bad = std::find_if(after_, after_ + n_, [](T x) { return !std::isfinite(x); });
    const auto at = static_cast<std::size_t>(bad - after_);
    if (at < n_) found_ = {static_cast<std::int64_t>(offset_ + at), static_cast<double>(row[at])};
  }

  const Sweep& s_;
  const SweepTiling tiling_;
  const Overwritten overwritten_;
  const std::size_t checked_;
  std::optional<WeightOverflow> found_;
  bool read_[kSweepInputs] = {};
  std::vector<RandomStream> streams_;                                   // of the outputs
  std::size_t row_ = 0, column_ = 0, offset_ = 0, n_ = 0, padded_ = 0;  // of the tile at hand
  Spread<T> inputs_[kSweepInputs] = {};
  Spread<T> registers_[kSweepRegisters] = {};
  alignas(64) T after_[kTile];  // what is stored, read back
  alignas(64) T own_[kSweepRegisters][kTile + 64 / sizeof(T)];
  alignas(64) T loaded_[kSweepInputs][kTile + 64 / sizeof(T)];
};

template <class T>
void RunTiles(const Sweep& s, const SweepTiling& tiling, std::size_t begin, std::size_t end) {
  SweepMachine<T, false> machine(s, tiling, 0);
  for (std::size_t tile = begin; tile < end; ++tile) machine.RunTile(tile);
}

void SweepTiles(const Sweep& s, const SweepTiling& tiling, std::size_t begin, std::size_t end) {
  s.arithmetic == Scalar::f64 ? RunTiles<double>(s, tiling, begin, end)
                              : RunTiles<float>(s, tiling, begin, end);
}

template <class T>
std::optional<WeightOverflow> CheckTiles(const Sweep& s, const SweepTiling& tiling, std::size_t output,
                                         std::size_t begin, std::size_t end) {
  SweepMachine<T, true> machine(s, tiling, output);
  for (std::size_t tile = begin; tile < end && !machine.found(); ++tile) machine.RunTile(tile);
  return machine.found();
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

/// Rows whose operands are broadcast along neither axis are one long row.
SweepTiling tile(const Sweep& s) {
  assert(s.inputs.size() == s.program.inputs && s.inputs.size() <= kSweepInputs);
  assert(s.outputs.size() == s.program.outputs && s.outputs.size() <= kSweepOutputs);
  assert(s.arithmetic == Scalar::f32 || s.arithmetic == Scalar::f64);
  const bool by_rows = std::ranges::any_of(s.inputs, [](const PointwiseInput& in) {
    return in.broadcast == Broadcast::over_rows || in.broadcast == Broadcast::over_columns;
  });
  const auto rows = static_cast<std::size_t>(s.rows), width = static_cast<std::size_t>(s.width);
  SweepTiling t;
  t.width = by_rows ? width : rows * width;
  t.step = kSweepTileBytes / bytes_of(s.arithmetic);
  t.pieces = std::max<std::size_t>(1, (t.width + t.step - 1) / t.step);
  t.tiles = width == 0 ? 0 : (by_rows ? rows : std::min<std::size_t>(rows, 1)) * t.pieces;
  return t;
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
  const SweepTiling t = tile(s);
  for_tiles(ctx, t, [&](std::size_t begin, std::size_t end) { run(s, t, begin, end); });
}

std::optional<WeightOverflow> find_overflow(const Context& ctx, const Sweep& s, std::size_t output) {
  const auto check = HWY_DISPATCH_TABLE(CheckSweepTiles)[ctx.target()];
  const SweepTiling t = tile(s);
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
