// Rounding of the operands of a product and of its partial sums.
#pragma once

#include <cstddef>
#include <cstdint>

#include "mantissa/core/numeric/card.h"
#include "mantissa/core/numeric/format.h"

namespace mantissa {

/// How an operand of a product is rounded on load: to nearest in `format`. With several parts the operand
/// becomes a sum of values of `format`: the first part is the rounded operand, and each further part is the
/// rounded remainder. Further parts are 0 if the first one is not finite. The product then sums the products
/// of parts (i, j) with i + j < parts, smallest terms first: three products for two parts, six for three, as
/// jax.lax.Precision "high" and "highest" do on a TPU.
struct Factor {
  Scalar format = Scalar::f32;
  int parts = 1;                  // more than 1 only for bf16
  bool saturate = false;          // overflow to the largest finite value
  bool flush_subnormals = false;  // results below the smallest normal become zero

  constexpr Factor() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a plain format is the usual rounding of an operand
  constexpr Factor(Scalar f) : format(f) {}
  constexpr Factor(Scalar f, int n) : format(f), parts(n) {}
  constexpr bool plain() const { return parts == 1 && !saturate && !flush_subnormals; }
  friend bool operator==(const Factor&, const Factor&) = default;
};

/// Returns the number of products of parts (i, j) with i + j < parts.
constexpr std::size_t products_of_parts(std::size_t parts) {
  return parts * (parts + 1) / 2;
}

/// The order in which a row of products is summed (kernels/gemm.h). All give the same bits on every machine.
enum class SumOrder : std::uint8_t {
  chain,  // blocks of 256 terms, each one chain of fused multiply-adds
  tile,   // blocks of 32 terms, each a chain over the even and one over the odd terms, as AMX sums them
  card,   // the groups of terms, the order and the roundings of an accelerator (core/numeric/card_sum.h)
};

/// Returns true if every value of `format` is a bf16 value: products of such factors can run on units that
/// multiply bf16, and are summed in tile order.
constexpr bool exact_in_bf16(Scalar format) {
  return format == Scalar::bf16 || format == Scalar::e4m3 || format == Scalar::e5m2;
}

/// How the partial sums of a product are kept: rounded to nearest in `format` after every `block` terms from
/// the leaf's start (numeric order: kernels/gemm.h), and at the leaf's end. 0 means after every block of 256.
/// Nothing is rounded in f32 (f64 in f64 arithmetic).
///
/// With a card, `order` is SumOrder::card, `format` that of the card's accumulators (f32 or f16), and `block`
/// selects the instruction or the loop around it (find_card_sum()).
struct Accumulator {
  Scalar format = Scalar::f32;
  std::int64_t block = 0;
  SumOrder order = SumOrder::chain;
  Card card = Card::none;

  constexpr Accumulator() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): the default block
  constexpr Accumulator(Scalar f) : format(f) {}
  constexpr Accumulator(Scalar f, std::int64_t terms, SumOrder o = SumOrder::chain)
      : format(f), block(terms), order(o) {}
  // NOLINTNEXTLINE(google-explicit-constructor): sums of f32 in this order
  constexpr Accumulator(SumOrder o) : order(o) {}
  constexpr Accumulator(Card c, Scalar f, std::int64_t terms)
      : format(f), block(terms), order(SumOrder::card), card(c) {}
  constexpr bool rounds() const {
    return card == Card::none && format != Scalar::f32 && format != Scalar::f64;
  }
  friend bool operator==(const Accumulator&, const Accumulator&) = default;
};

}  // namespace mantissa
