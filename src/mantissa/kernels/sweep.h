// One pass over the elements of a parameter: an expression program that reads a weight, its gradient, what an
// optimizer keeps and some numbers, and stores every result in a format and with a rounding of its own.
// Optimizers are made of these.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "mantissa/kernels/pointwise.h"
#include "mantissa/numeric/philox.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::kernels {

/// What the random bits of stochastic rounding depend on, beside the element's index and RandomUse: the run's
/// seed, the attempted step, and hash_name() of the parameter's name.
struct RoundingKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::uint64_t name_hash = 0;
};

/// Where output i of the program goes. Values are stored in `type`; f64 results are always rounded to
/// nearest.
struct SweepOutput {
  void* data = nullptr;  // null: nowhere
  Scalar type = Scalar::f32;
  Rounding rounding = Rounding::nearest;
  RandomUse random = RandomUse::rounding;  // the stream of stochastic rounding
  /// Further places for what is stored, rounded to nearest from the stored value: copies in lower formats.
  std::span<const PointwiseOutput> copies = {};
};

/// A program over [rows, width] contiguous elements. An input that is not broadcast may be the memory of an
/// output of the same type: an element is read before it is written. Numbers (Broadcast::everywhere) are
/// rounded once to the arithmetic as they are read, and so is every other operand. Elements do not depend on
/// each other.
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

/// A weight that does not fit the format that it is stored in.
struct WeightOverflow {
  std::int64_t element = 0;
  double value = 0;  // before it is rounded
  friend bool operator==(const WeightOverflow&, const WeightOverflow&) = default;
};

/// The first element of output `output` that sweep(ctx, s) would store as inf or nan; none where all are
/// finite. Stores nothing.
std::optional<WeightOverflow> find_overflow(const Context& ctx, const Sweep& s, std::size_t output);

}  // namespace mantissa::kernels
