// Matrix units of accelerators: which instruction multiplies which formats, and how it adds products to its
// accumulator. Source: Xie et al., "MMA-Sim" (arXiv:2511.10909), which the authors compared with the cards.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "mantissa/core/numeric/format.h"
#include "mantissa/core/numeric/scaled.h"

namespace mantissa {

/// An accelerator whose sums of products can be computed. `none`: sums of this program (kernels/gemm.h).
enum class Card : std::uint8_t { none, v100, a100, ada, h100, b200, rtx_blackwell, mi250, mi300 };

struct CardTraits {
  Card card;
  std::string_view name;   // "h100", as policies name it
  std::string_view title;  // "NVIDIA H100 (Hopper)"
};

/// Returns all cards except `none`.
std::span<const CardTraits> cards();
/// Returns the name in policies, "" for none.
std::string_view name(Card card);
std::optional<Card> parse_card(std::string_view name);

/// How an instruction adds a group of products to the accumulator. E is the largest exponent of the group.
/// The exponent of a product is the sum of its factors' exponents; a subnormal has that of the smallest
/// normal number of its format, a zero −126.
enum class GroupSum : std::uint8_t {
  // Products and accumulator are truncated toward zero at 2^(E − bits) and added exactly. The sum is
  // truncated to f32 (or to fewer bits), or rounded to nearest in f16. Sums that are zero are +0.
  truncated,
  // Products are truncated at 2^(P − bits), P the largest exponent of products, and added exactly. With E the
  // larger of P and the accumulator's exponent, their sum is floored at 2^(E − 31), the accumulator at
  // 2^(E − 24). The sum of both rounds to nearest in f32.
  floored,
  // The same with separate sums of even and odd products, P and bits for each. Both are floored at
  // 2^(E' − 24), E' the larger P, before they are added. An accumulator below 2^(E − 25) counts as zero.
  floored_halves,
  // A tree of f32 additions of neighbouring products; its result is added to the accumulator in f32.
  // Subnormal factors and results of additions become zero.
  pairs,
  // One chain of fused multiply-adds.
  fma,
};

/// An instruction of a card. 8-bit factors of both formats may be combined.
struct Instruction {
  Card card;
  Scalar factor;
  std::string_view name;
  std::int64_t k;      // terms of the sum
  std::int64_t group;  // products that are added at once
  GroupSum sum;
  int bits = 24;         // fraction bits of aligned products
  int result_bits = 23;  // fraction bits of an f32 result
  bool f16 = false;      // also has f16 accumulators
};

/// Returns all instructions, those of a card and a format from the usual one (with which libraries multiply
/// matrices) to others.
std::span<const Instruction> instructions();

/// Returns the format in which factors of formats `a` and `b` enter an instruction of `card`: e4m3 next to
/// a format of more bits has that format. Returns null if the card multiplies no such factors.
std::optional<Scalar> factor_on(Card card, Scalar a, Scalar b);
/// Returns the instruction of `card` for `factor` with `k` terms, the usual one for k = 0; null if there is
/// none.
const Instruction* find_instruction(Card card, Scalar factor, std::int64_t k = 0);

/// An instruction that multiplies blocks with scales. Its accumulator is f32; a group is an instruction.
struct BlockInstruction {
  Card card;
  std::string_view name;
  std::int64_t k;
  int bits;    // fraction bits of aligned products, or of sums of 16
  bool fours;  // multiplies elements of 4 bits alone: mxfp4 by mxfp4, nvfp4 by nvfp4
};
std::span<const BlockInstruction> block_instructions();

/// Returns the instruction of `card` that multiplies blocks in formats `a` and `b`, or null.
const BlockInstruction* find_block_instruction(Card card, BlockFormat a, BlockFormat b);

/// Returns what `card` multiplies: "f16, bf16, tf32, and blocks of mxfp8, nvfp4".
std::string factors_of(Card card);

}  // namespace mantissa
