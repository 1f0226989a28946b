// The sum of a product on a card (core/numeric/card.h), and its exact definition, term by term.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "mantissa/core/numeric/card.h"
#include "mantissa/core/numeric/factor.h"

namespace mantissa {

/// What the scales of blocks do to the products of a group. Factors are then coded elements.
enum class CardScales : std::uint8_t {
  none,
  // Powers of two (e8m0), whose exponents are added to those of products.
  e8m0,
  // Sums of 16 products are exact. Each is multiplied by the significands of its two scales and has the sum
  // of their exponents, instead of products.
  e8m0_of_sums,
  e4m3_of_sums,
};
/// True for the scales of sums of 16 products.
constexpr bool of_sums(CardScales s) {
  return s == CardScales::e8m0_of_sums || s == CardScales::e4m3_of_sums;
}

/// Returns an element of a block and the code of its scale in one f32: the lowest eight bits are the code.
/// Elements have at most 4 significant bits.
float coded_element(float element, std::uint8_t scale);

/// How a card sums products of two formats. Terms are numbered from 0; a group has those of the numbers
/// [i · group, (i + 1) · group), and absent terms at either end add nothing.
struct CardSum {
  GroupSum sum = GroupSum::truncated;
  std::int64_t k = 16;  // terms of an instruction
  std::int64_t group = 16;
  int bits = 25;               // fraction bits of aligned products
  int result_bits = 23;        // fraction bits of an f32 result
  bool f16 = false;            // the accumulator is f16
  int least_a = -126;          // exponent of the smallest normal number of A's format
  int least_b = -126;          // and of B's
  std::int64_t promotion = 0;  // after so many terms the accumulator is added to an f32 sum, and starts again
                               // from +0; 0: never
  CardScales scales = CardScales::none;
  friend bool operator==(const CardSum&, const CardSum&) = default;
};

/// The most terms of an accumulator that is added to an f32 sum; `promotion` divides it.
inline constexpr std::int64_t kMostPromoted = 128;

/// Returns the sum of products of factors in formats `a` and `b` under `accumulator`, or null if the card has
/// no such instruction. accumulator.block is the k of an instruction, or else the terms of a promotion:
/// a power of two, at least the usual instruction's k and at most kMostPromoted.
std::optional<CardSum> find_card_sum(const Accumulator& accumulator, Scalar a, Scalar b);

/// The same for blocks in formats `a` and `b`, whose factors are coded elements. Terms of a sum begin where
/// blocks do.
std::optional<CardSum> find_card_sum(const Accumulator& accumulator, BlockFormat a, BlockFormat b);

/// Returns true if `block` has a meaning for some instruction of the card.
bool takes_block(Card card, std::int64_t block);

/// Adds a group, at most `sum.group` products, to the accumulator `c` (f32; of an f16 accumulator its value).
/// With scales, `a` and `b` are coded elements. NVIDIA's cards give NaN the bits 0x7fffffff, or 0x7fff in
/// f16.
float add_group(const CardSum& sum, std::span<const float> a, std::span<const float> b, float c);

/// Returns Σ a[i] · b[i] for terms numbered from 0, on top of the accumulator `c`; of coded elements with
/// scales.
float card_dot(const CardSum& sum, std::span<const float> a, std::span<const float> b, float c = 0);

}  // namespace mantissa
