// Runs expression programs over a parameter tile by tile. A sink consumes the outputs: it stores or checks
// them (sweep.cpp) or sums them (reduce.cpp).
#if defined(MANTISSA_KERNELS_CPU_SWEEP_MACHINE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef MANTISSA_KERNELS_CPU_SWEEP_MACHINE_INL_H_
#undef MANTISSA_KERNELS_CPU_SWEEP_MACHINE_INL_H_
#else
#define MANTISSA_KERNELS_CPU_SWEEP_MACHINE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "mantissa/core/numeric/state_blocks-inl.h"
#include "mantissa/kernels/cpu/instruction-inl.h"
#include "mantissa/kernels/cpu/rows/rows-inl.h"
#include "mantissa/kernels/cpu/update/sweep_tiling.h"
#include "mantissa/kernels/sweep.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

using mantissa::HWY_NAMESPACE::DecodeStates;
using mantissa::HWY_NAMESPACE::EncodeStates;

inline BlockedState StateOf(StateCodes codes, const void* data, std::size_t count) {
  return {codes, const_cast<std::byte*>(static_cast<const std::byte*>(data)), count};
}

/// The position of a tile: `n` elements from (row, column), which is element `offset`. Register rows have
/// `padded` elements.
struct Tile {
  std::size_t row = 0, column = 0, offset = 0, n = 0, padded = 0;
};

/// Marks in `copied` the inputs that need their own memory, because an output overwrites them before their
/// last use.
inline void FindOverwritten(const Expression& program, std::span<const PointwiseInput> inputs,
                            std::span<const SweepOutput> outputs, bool* copied) {
  bool written[kSweepInputs] = {};
  int held[kSweepRegisters];  // the input that the register views; -1: none
  std::fill_n(held, kSweepRegisters, -1);
  for (const Instruction& in : program.code) {
    if (in.op == Opcode::load) {
      held[in.dst] = in.index;
      continue;
    }
    if (in.op != Opcode::constant) {
      for (const std::uint8_t r : {in.a, in.b, in.c}) {
        if (held[r] >= 0 && written[held[r]]) copied[held[r]] = true;
      }
    }
    if (in.op == Opcode::store || in.op == Opcode::move) {
      for (std::size_t k = 0; k < inputs.size() && !outputs.empty(); ++k)
        written[k] = written[k] || inputs[k].data == outputs[in.index].data;
    }
    if (in.op != Opcode::store) held[in.dst] = -1;
  }
}

/// Sink: Take(output, row, tile) receives the values of an output. Stored(output, row, tile) replaces the
/// row's values by those that Take stored.
template <class T, class Sink>
class SweepMachine {
 public:
  SweepMachine(const Expression& program, std::span<const PointwiseInput> inputs,
               std::span<const SweepOutput> outputs, const SweepTiling& tiling, Sink& sink)
      : program_(program), operands_(inputs), tiling_(tiling), sink_(sink) {
    FindOverwritten(program, inputs, outputs, copied_);
    for (const Instruction& in : program.code) {
      if (in.op == Opcode::load) read_[in.index] = true;
    }
    for (std::size_t k = 0; k < inputs.size(); ++k) {
      if (read_[k] && inputs[k].broadcast == Broadcast::everywhere) Fill(k, 0);
    }
  }

  void RunTile(std::size_t number) {
    tile_.row = number / tiling_.pieces;
    tile_.column = number % tiling_.pieces * tiling_.step;
    tile_.offset = tile_.row * tiling_.width + tile_.column;
    tile_.n = std::min(tiling_.step, tiling_.width - tile_.column);
    tile_.padded = (tile_.n + kPadding - 1) / kPadding * kPadding;
    for (std::size_t k = 0; k < operands_.size(); ++k) {
      if (read_[k]) View(k);
    }
    for (const Instruction& in : program_.code) Run(in);
  }

 private:
  static constexpr std::size_t kTile = kSweepTileBytes / sizeof(T);
  static constexpr std::size_t kGap = 64 / sizeof(T);  // keeps registers in different cache sets

  void Fill(std::size_t k, std::size_t element) {
    T number;
    LoadRow(operands_[k].data, operands_[k].type, element, 1, &number);
    std::fill_n(loaded_[k], kPadding, number);
    inputs_[k] = {loaded_[k], 0};
  }

  void View(std::size_t k) {
    const PointwiseInput& input = operands_[k];
    if (input.broadcast == Broadcast::everywhere) return;
    if (input.broadcast == Broadcast::over_columns) return Fill(k, tile_.row);
    if (input.codes != StateCodes::none) return Decode(k);
    const std::size_t at = input.broadcast == Broadcast::over_rows ? tile_.column : tile_.offset;
    const std::size_t size = bytes_of(input.type);
    // Prefetch the next tile: the hardware does not predict reads that alternate between operands.
    const auto* next = static_cast<const std::byte*>(input.data) + (at + tile_.n) * size;
    for (std::size_t line = 0; line < tile_.n * size; line += 64) __builtin_prefetch(next + line, 0, 2);
    if (tile_.n == tile_.padded && !copied_[k]) {
      inputs_[k] = {ViewRow(input.data, input.type, at, tile_.n, loaded_[k]), 1};
      return;
    }
    LoadRow(input.data, input.type, at, tile_.n, loaded_[k]);
    std::fill(loaded_[k] + tile_.n, loaded_[k] + tile_.padded, T{0});
    inputs_[k] = {loaded_[k], 1};
  }

  /// Reads a tile of a state in blocks. Tiles are those of one long row, and begin with a block.
  void Decode(std::size_t k) {
    static_assert(kTile % kStateBlock == 0);
    float decoded[kTile];
    DecodeStates(StateOf(operands_[k].codes, operands_[k].data, tiling_.width), tile_.offset, tile_.n,
                 decoded);
    std::copy_n(decoded, tile_.n, loaded_[k]);
    std::fill(loaded_[k] + tile_.n, loaded_[k] + tile_.padded, T{0});
    inputs_[k] = {loaded_[k], 1};
  }

  void Run(const Instruction& in) {
    if (in.op == Opcode::load) {
      registers_[in.dst] = inputs_[in.index];
      return;
    }
    if (in.op == Opcode::store) return sink_.Take(in.index, Whole(registers_[in.a]), tile_);
    T* dst = own_[in.dst];
    if (in.op == Opcode::move) {
      Map(tile_.padded, registers_[in.a], registers_[in.b], dst,
          [](auto x, auto y) HWY_ATTR { return hn::Add(x, y); });
      sink_.Take(in.index, dst, tile_);
      sink_.Stored(in.index, dst, tile_);
    } else {
      Compute<T>(in, tile_.padded, registers_[in.a], registers_[in.b], registers_[in.c], dst);
    }
    registers_[in.dst] = {dst, 1};
  }

  /// Returns the row of a register, filled if it is one number.
  const T* Whole(Spread<T> r) {
    if (r.step == 1) return r.data;
    std::fill_n(spread_, tile_.padded, *r.data);
    return spread_;
  }

  const Expression& program_;
  const std::span<const PointwiseInput> operands_;
  const SweepTiling tiling_;
  Sink& sink_;
  Tile tile_;
  bool read_[kSweepInputs] = {}, copied_[kSweepInputs] = {};
  Spread<T> inputs_[kSweepInputs] = {};
  Spread<T> registers_[kSweepRegisters] = {};
  alignas(64) T spread_[kTile];
  alignas(64) T own_[kSweepRegisters][kTile + kGap];
  alignas(64) T loaded_[kSweepInputs][kTile + kGap];
};

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#endif  // MANTISSA_KERNELS_CPU_SWEEP_MACHINE_INL_H_
