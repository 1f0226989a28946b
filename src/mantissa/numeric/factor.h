// How products treat what they multiply and what they sum.
#pragma once

#include <cstdint>

#include "mantissa/numeric/format.h"

namespace mantissa {

/// How a factor of a product is rounded while it is loaded: to nearest in `format`. With several parts it is
/// a sum of values of `format` instead: the first is the factor rounded, each further one is what those
/// before it leave, rounded; they are 0 where the first one is not finite. The product is then that of the
/// parts (i, j) with i + j < parts, the smallest terms first: three products of two parts, six of three, as
/// jax.lax.Precision "high" and "highest" make them on a TPU.
struct Factor {
  Scalar format = Scalar::f32;
  int parts = 1;                  // more than 1 only in bf16
  bool saturate = false;          // overflow to the largest finite value
  bool flush_subnormals = false;  // results below the smallest normal become zero

  constexpr Factor() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a plain format is a factor's usual rounding
  constexpr Factor(Scalar f) : format(f) {}
  constexpr Factor(Scalar f, int n) : format(f), parts(n) {}
  constexpr bool plain() const { return parts == 1 && !saturate && !flush_subnormals; }
  friend bool operator==(const Factor&, const Factor&) = default;
};

/// How the partial sums of a product are kept: rounded to nearest in `format` after every `block` terms from
/// the leaf's start (numeric order: kernels/gemm.h), and at the leaf's end; 0: after every block of 256. In
/// f32 (f64 in f64 arithmetic) nothing is rounded.
struct Accumulator {
  Scalar format = Scalar::f32;
  std::int64_t block = 0;

  constexpr Accumulator() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): the usual block
  constexpr Accumulator(Scalar f) : format(f) {}
  constexpr Accumulator(Scalar f, std::int64_t terms) : format(f), block(terms) {}
  constexpr bool rounds() const { return format != Scalar::f32 && format != Scalar::f64; }
  friend bool operator==(const Accumulator&, const Accumulator&) = default;
};

}  // namespace mantissa
