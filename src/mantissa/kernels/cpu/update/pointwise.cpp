#include "mantissa/kernels/pointwise.h"

#include <algorithm>
#include <cassert>

#include "mantissa/kernels/cpu/tasks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/update/pointwise.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/instruction-inl.h"
#include "mantissa/kernels/cpu/rows/rows-inl.h"

#ifndef MANTISSA_KERNELS_CPU_POINTWISE_ONCE
#define MANTISSA_KERNELS_CPU_POINTWISE_ONCE
namespace mantissa::kernels {

constexpr std::size_t kRegisters = 16, kInputs = 8;
constexpr std::size_t kTileBytes = 2048;  // per register, so that all registers fit the first-level cache

/// The elements as rows of `width`, each divided into pieces of `step`. A tile is one piece.
struct Tiling {
  std::size_t width = 0, step = 0, pieces = 0, tiles = 0;
  std::size_t repeats = 0;  // times a broadcast input repeats in a tile; 0: a tile is part of the input's row
};

struct PointwiseCall {
  const Expression& program;
  std::span<const PointwiseInput> inputs;
  std::span<const PointwiseOutput> outputs;
  std::size_t input_width = 0;  // of broadcast inputs
  Tiling tiling;
};

}  // namespace mantissa::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

/// Runs a program tile by tile. A tile reads all inputs before it writes any output, so an output may share
/// an input's memory.
template <class T>
class Machine {
 public:
  explicit Machine(const PointwiseCall& call) : call_(call) {
    std::size_t writes[kRegisters] = {};
    for (const Instruction& in : call.program.code) {
      if (in.op == Opcode::load) read_[in.index] = true;
      if (in.op != Opcode::store) ++writes[in.dst];
    }
    for (const Instruction& in : call.program.code) {
      if (in.op != Opcode::constant || writes[in.dst] > 1) continue;
      fixed_[in.dst] = true;
      std::fill_n(own_[in.dst], kTile, static_cast<T>(in.value));
      registers_[in.dst] = own_[in.dst];
    }
    for (std::size_t k = 0; k < call.inputs.size(); ++k) {
      const PointwiseInput& input = call.inputs[k];
      const auto same = [&](const PointwiseOutput& output) { return output.data == input.data; };
      copied_[k] = std::any_of(call.outputs.begin(), call.outputs.end(), same);
      if (!read_[k] || input.broadcast == Broadcast::none) continue;
      for (std::size_t r = 0; r < call.tiling.repeats; ++r) {
        LoadRow(input.data, input.type, 0, call.input_width, loaded_[k] + r * call.input_width);
      }
    }
  }

  void RunTile(std::size_t tile) {
    const Tiling& tiling = call_.tiling;
    const std::size_t column = tile % tiling.pieces * tiling.step;
    const std::size_t row = tile / tiling.pieces;
    const std::size_t n = std::min(tiling.step, tiling.width - column);
    const std::size_t padded = (n + kPadding - 1) / kPadding * kPadding;
    for (std::size_t k = 0; k < call_.inputs.size(); ++k) {
      if (read_[k]) View(k, At(call_.inputs[k], row, column), column, n, padded);
    }
    for (const Instruction& in : call_.program.code) {
      if (in.op == Opcode::load) {
        registers_[in.dst] = inputs_[in.index];
      } else if (in.op == Opcode::store) {
        const PointwiseOutput& output = call_.outputs[in.index];
        StoreRow(registers_[in.a], n, output.data, output.type, At(output, row, column));
      } else if (in.op != Opcode::constant || !fixed_[in.dst]) {
        Compute<T>(in, padded, registers_[in.a], registers_[in.b], registers_[in.c], own_[in.dst]);
        registers_[in.dst] = own_[in.dst];
      }
    }
  }

 private:
  static constexpr std::size_t kTile = kTileBytes / sizeof(T);

  /// Returns the offset of a tile in an operand.
  template <class Operand>
  std::size_t At(const Operand& operand, std::size_t row, std::size_t column) const {
    return row * (operand.stride == 0 ? call_.tiling.width : static_cast<std::size_t>(operand.stride)) +
           column;
  }

  void View(std::size_t k, std::size_t offset, std::size_t column, std::size_t n, std::size_t padded) {
    const PointwiseInput& input = call_.inputs[k];
    const bool broadcast = input.broadcast == Broadcast::over_rows;
    inputs_[k] = loaded_[k];
    if (!broadcast || call_.tiling.repeats == 0) {
      const std::size_t at = broadcast ? column : offset, size = bytes_of(input.type);
      // Prefetch the next tile: the hardware does not predict reads that alternate between operands.
      const auto* next = static_cast<const std::byte*>(input.data) + (at + n) * size;
      for (std::size_t line = 0; line < n * size; line += 64) __builtin_prefetch(next + line, 0, 2);
      if (n == padded && !copied_[k]) {
        inputs_[k] = ViewRow(input.data, input.type, at, n, loaded_[k]);
        return;
      }
      LoadRow(input.data, input.type, at, n, loaded_[k]);
    }
    std::fill(loaded_[k] + n, loaded_[k] + padded, T{0});
  }

  const PointwiseCall& call_;
  bool read_[kInputs] = {}, copied_[kInputs] = {}, fixed_[kRegisters] = {};
  const T* inputs_[kInputs] = {};
  const T* registers_[kRegisters] = {};  // each register's tile: its own memory, or an input
  alignas(64) T own_[kRegisters][kTile];
  alignas(64) T loaded_[kInputs][kTile];
};

template <class T>
void RunMachine(const PointwiseCall& call, std::size_t begin, std::size_t end) {
  Machine<T> machine(call);
  for (std::size_t tile = begin; tile < end; ++tile) machine.RunTile(tile);
}

void RunTilesF32(const PointwiseCall& call, std::size_t begin, std::size_t end) {
  RunMachine<float>(call, begin, end);
}

void RunTilesF64(const PointwiseCall& call, std::size_t begin, std::size_t end) {
  RunMachine<double>(call, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(RunTilesF32);
HWY_EXPORT(RunTilesF64);

namespace {

/// Rows without gaps form one long row if no input is broadcast, or if they are so short that a tile holds
/// several of them.
Tiling tile_elements(std::size_t rows, std::size_t width, bool broadcast, bool gaps, std::size_t tile) {
  Tiling t;
  const bool joined = !gaps && (!broadcast || width <= tile);
  if (broadcast && joined) t.repeats = tile / width;
  t.width = joined ? rows * width : width;
  t.step = t.repeats > 0 ? t.repeats * width : tile;
  t.pieces = (t.width + t.step - 1) / t.step;
  t.tiles = joined ? t.pieces : rows * t.pieces;
  return t;
}

}  // namespace

void pointwise(const Context& ctx, const Expression& program, std::int64_t rows, std::int64_t width,
               std::span<const PointwiseInput> inputs, std::span<const PointwiseOutput> outputs) {
  assert(inputs.size() == program.inputs && inputs.size() <= kInputs && outputs.size() == program.outputs);
  if (rows == 0 || width == 0) return;
  const auto is_f64 = [](const auto& operand) { return operand.type == Scalar::f64; };
  const bool f64 = std::ranges::any_of(inputs, is_f64) || std::ranges::any_of(outputs, is_f64);
  const bool broadcast =
      std::ranges::any_of(inputs, [](const auto& in) { return in.broadcast != Broadcast::none; });
  const auto has_gaps = [](const auto& operand) { return operand.stride != 0; };
  const bool gaps = std::ranges::any_of(inputs, has_gaps) || std::ranges::any_of(outputs, has_gaps);
  const std::size_t tile = kTileBytes / (f64 ? sizeof(double) : sizeof(float));
  const PointwiseCall call{
      program, inputs, outputs, static_cast<std::size_t>(width),
      tile_elements(static_cast<std::size_t>(rows), static_cast<std::size_t>(width), broadcast, gaps, tile)};
  const auto run =
      f64 ? HWY_DISPATCH_TABLE(RunTilesF64)[ctx.target()] : HWY_DISPATCH_TABLE(RunTilesF32)[ctx.target()];
  for_row_ranges(ctx, static_cast<std::int64_t>(call.tiling.tiles),
                 static_cast<std::int64_t>(call.tiling.step),
                 [&](std::size_t begin, std::size_t end) { run(call, begin, end); });
}

}  // namespace mantissa::kernels
#endif
