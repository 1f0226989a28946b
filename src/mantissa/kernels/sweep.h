// One pass over the elements of a parameter: an expression program reads the weight, its gradient, the
// optimizer's state and some numbers, and stores each result with its own format and rounding. Optimizers
// consist of sweeps.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "mantissa/core/numeric/philox.h"
#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/pointwise.h"

namespace mantissa::kernels {

/// The key of the random bits of stochastic rounding, besides the element's index and RandomUse: the run's
/// seed, the attempted step, and hash_name() of the parameter's name.
struct RoundingKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t name_hash = 0;
};

/// The destination of one output of the program. Values are stored in `type`. f64 results always round to
/// nearest.
struct SweepOutput {
  void* data = nullptr;  // null: not stored
  Scalar type = Scalar::f32;
  Rounding rounding = Rounding::nearest;
  RandomUse random = RandomUse::rounding;  // the stream of stochastic rounding
  /// Copies of the stored value, rounded to nearest in their formats.
  std::span<const PointwiseOutput> copies = {};
  /// `data` is a state in blocks (core/numeric/state_format.h), without copies. Codes round to nearest.
  StateCodes codes = StateCodes::none;
};

/// A program over [rows, width] contiguous elements. An input that is not broadcast may share the memory of
/// an output of the same type: an element is read before it is written. Blocks of states follow the order of
/// the elements in memory; no operand of a sweep over them is broadcast along rows or columns. Every operand,
/// including numbers (Broadcast::everywhere), rounds once to the arithmetic when it is read. Elements do not
/// depend on each other.
struct Sweep {
  const Expression& program;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::span<const PointwiseInput> inputs;
  std::span<const SweepOutput> outputs;
  Scalar arithmetic = Scalar::f32;  // or f64
  RoundingKey key{};
};
void sweep(const Context& ctx, const Sweep& s);

/// A weight that exceeds the range of its storage format.
struct WeightOverflow {
  std::int64_t element = 0;
  double value = 0;  // before rounding
  friend bool operator==(const WeightOverflow&, const WeightOverflow&) = default;
};

/// Returns the first element of output `output` that sweep(ctx, s) would store as inf or NaN, or null. Stores
/// nothing.
std::optional<WeightOverflow> find_overflow(const Context& ctx, const Sweep& s, std::size_t output);

}  // namespace mantissa::kernels
