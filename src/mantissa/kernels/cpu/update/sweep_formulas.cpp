#include "mantissa/kernels/cpu/update/sweep_formulas.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "mantissa/kernels/cpu/piece.h"
#include "mantissa/kernels/formulas.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/update/sweep_formulas.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/core/numeric/stochastic-inl.h"
#include "mantissa/kernels/cpu/rows/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

#include "mantissa/kernels/formulas.inc"

/// The rows of one piece. An output that shares an input's memory shares the input's row.
template <class Formula, class T>
struct PieceRows {
  const T* in[Formula::kRows];
  T* out[Formula::kOutputs];
  T* before = nullptr;  // the weight before move(), if the formula uses it
};

/// The operations of a formula on the vector of elements from i on.
template <class Formula, class D>
class Lanes {
 public:
  using T = hn::TFromD<D>;
  using V = hn::Vec<D>;
  /// Placeholders for values that exist only after the moved weight is stored.
  struct Moved {};
  struct Lost {};

  HWY_INLINE Lanes(D d, std::size_t i, const PieceRows<Formula, T>& rows, const T* numbers)
      : d_(d), i_(i), rows_(rows), numbers_(numbers) {}

  HWY_INLINE V load(std::size_t input) const {
    return input < Formula::kRows ? hn::LoadU(d_, rows_.in[input] + i_)
                                  : hn::Set(d_, numbers_[input - Formula::kRows]);
  }
  HWY_INLINE V add(V a, V b) const { return hn::Add(a, b); }
  HWY_INLINE V sub(V a, V b) const { return hn::Sub(a, b); }
  HWY_INLINE V mul(V a, V b) const { return hn::Mul(a, b); }
  HWY_INLINE V div(V a, V b) const { return hn::Div(a, b); }
  HWY_INLINE V sqrt(V a) const { return hn::Sqrt(a); }
  HWY_INLINE void store(V a, std::size_t output) const { hn::StoreU(a, d_, rows_.out[output] + i_); }
  HWY_INLINE Moved move(V weight, V change, std::size_t output) const {
    hn::StoreU(weight, d_, rows_.before + i_);
    hn::StoreU(change, d_, rows_.out[Formula::kOutputs - 1] + i_);
    store(hn::Add(weight, change), output);
    return {};
  }
  HWY_INLINE Lost lost(Moved, V, V) const { return {}; }
  HWY_INLINE void store(Lost, std::size_t) const {}

 private:
  const D d_;
  const std::size_t i_;
  const PieceRows<Formula, T>& rows_;
  const T* numbers_;
};

template <class Formula, class T>
class FormulaMachine {
 public:
  explicit FormulaMachine(const Sweep& s) : s_(s) {
    for (std::size_t k = Formula::kRows; k < s.inputs.size(); ++k)
      LoadRow(s.inputs[k].data, s.inputs[k].type, 0, 1, numbers_ + (k - Formula::kRows));
    for (std::size_t o = 0; o < Formula::kOutputs; ++o) {
      const SweepOutput& to = s.outputs[o];
      streams_[o] = RandomStream(s.key.seed, to.random, s.key.name_hash, s.key.step);
      const auto same = [&](const PointwiseInput& in) { return in.data == to.data && in.type == to.type; };
      const auto first = s.inputs.begin();
      source_[o] = static_cast<std::size_t>(std::find_if(first, first + Formula::kRows, same) - first);
    }
  }

  void Run(std::size_t offset, std::size_t n) {
    PieceRows<Formula, T> rows;
    for (std::size_t k = 0; k < Formula::kRows; ++k)
      rows.in[k] = ViewRow<T>(s_.inputs[k].data, s_.inputs[k].type, offset, n, loaded_[k]);
    for (std::size_t o = 0; o < Formula::kOutputs; ++o) rows.out[o] = Out(o, offset, rows);
    rows.before = before_;
    const T* numbers = numbers_;
    ForEachVector<T>(n, [&](auto d, std::size_t i) HWY_ATTR {
      Lanes<Formula, decltype(d)> lanes(d, i, rows, numbers);
      Formula::write(lanes);
    });
    Store(0, offset, n, rows.out[0]);
    if constexpr (Formula::kMoves) TakeLoss(n, rows);
    for (std::size_t o = 1; o < Formula::kOutputs; ++o) Store(o, offset, n, rows.out[o]);
  }

 private:
  /// Returns where output o is computed: in place if it is stored in T, else in its own row or its input's.
  T* Out(std::size_t o, std::size_t offset, const PieceRows<Formula, T>& rows) {
    const SweepOutput& to = s_.outputs[o];
    if (IsStoredAs<T>(to.type)) return static_cast<T*>(to.data) + offset;
    return source_[o] < Formula::kRows && rows.in[source_[o]] == loaded_[source_[o]] ? loaded_[source_[o]]
                                                                                     : stored_[o];
  }

  /// Rounds and stores a row that is not computed in place, and writes copies of the stored values.
  void Store(std::size_t o, std::size_t offset, std::size_t n, T* row) {
    const SweepOutput& to = s_.outputs[o];
    if (!IsStoredAs<T>(to.type)) {
      if constexpr (std::is_same_v<T, float>) {
        mantissa::HWY_NAMESPACE::StoreRowRounded(row, n, to.data, to.type, offset, to.rounding, streams_[o],
                                                 offset);
      } else {
        StoreRow(row, n, to.data, to.type, offset);
      }
      if (!to.copies.empty() || (o == 0 && Formula::kMoves)) LoadRow(to.data, to.type, offset, n, row);
    }
    for (const PointwiseOutput& copy : to.copies) StoreRow(row, n, copy.data, copy.type, offset);
  }

  /// Computes s − (w' − w). On entry the last output's row holds s, and the first output's row holds the
  /// stored w'.
  void TakeLoss(std::size_t n, const PieceRows<Formula, T>& rows) {
    T* change = rows.out[Formula::kOutputs - 1];
    ForEachVector<T>(n, [&](auto d, std::size_t i) HWY_ATTR {
      const auto moved = hn::Sub(hn::LoadU(d, rows.out[0] + i), hn::LoadU(d, rows.before + i));
      hn::StoreU(hn::Sub(hn::LoadU(d, change + i), moved), d, change + i);
    });
  }

  const Sweep& s_;
  T numbers_[16];
  std::array<RandomStream, 4> streams_{
      RandomStream(0, RandomUse::rounding, 0, 0), RandomStream(0, RandomUse::rounding, 0, 0),
      RandomStream(0, RandomUse::rounding, 0, 0), RandomStream(0, RandomUse::rounding, 0, 0)};
  std::size_t source_[Formula::kOutputs];  // the input that shares an output's memory
  alignas(64) T before_[kPiece];
  alignas(64) T loaded_[Formula::kRows][kPiece];
  alignas(64) T stored_[Formula::kOutputs][kPiece];
};

template <class Formula, class T>
void RunFormula(const Sweep& s, std::size_t begin, std::size_t end) {
  FormulaMachine<Formula, T> machine(s);
  for (std::size_t i = begin; i < end; i += kPiece) machine.Run(i, std::min(kPiece, end - i));
}

template <class Formula>
void RunRange(const Sweep& s, std::size_t begin, std::size_t end) {
  s.arithmetic == Scalar::f64 ? RunFormula<Formula, double>(s, begin, end)
                              : RunFormula<Formula, float>(s, begin, end);
}

void AdamWRange(const Sweep& s, std::size_t begin, std::size_t end) {
  RunRange<AdamWFormula<false>>(s, begin, end);
}

void CompensatedAdamWRange(const Sweep& s, std::size_t begin, std::size_t end) {
  RunRange<AdamWFormula<true>>(s, begin, end);
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {

HWY_EXPORT(AdamWRange);
HWY_EXPORT(CompensatedAdamWRange);

CompiledSweep compiled_sweep(const Sweep& s, std::size_t target) {
  // The compiled code expects rows first, then numbers, stores every output, and knows no blocks.
  const auto number = std::ranges::find(s.inputs, Broadcast::everywhere, &PointwiseInput::broadcast);
  const bool expected =
      std::all_of(s.inputs.begin(), number,
                  [](const PointwiseInput& in) {
                    return in.broadcast == Broadcast::none && in.codes == StateCodes::none;
                  }) &&
      std::all_of(number, s.inputs.end(),
                  [](const PointwiseInput& in) { return in.broadcast == Broadcast::everywhere; }) &&
      std::ranges::all_of(s.outputs, [](const SweepOutput& out) {
        return out.data != nullptr && out.codes == StateCodes::none;
      });
  if (!expected) return nullptr;
  if (s.program == adamw_program(false)) return HWY_DISPATCH_TABLE(AdamWRange)[target];
  if (s.program == adamw_program(true)) return HWY_DISPATCH_TABLE(CompensatedAdamWRange)[target];
  return nullptr;
}

}  // namespace mantissa::kernels
#endif
