#include "mantissa/core/numeric/card.h"

#include <algorithm>
#include <array>

#include "mantissa/core/numeric/same_name.h"

namespace mantissa {
namespace {

constexpr std::array kCards = {
    CardTraits{Card::v100, "v100", "NVIDIA V100 (Volta)"},
    CardTraits{Card::a100, "a100", "NVIDIA A100 (Ampere)"},
    CardTraits{Card::ada, "ada", "NVIDIA L40S, RTX 40 (Ada Lovelace)"},
    CardTraits{Card::h100, "h100", "NVIDIA H100, H200 (Hopper)"},
    CardTraits{Card::b200, "b200", "NVIDIA B200, GB200 (Blackwell)"},
    CardTraits{Card::rtx_blackwell, "rtx-blackwell", "NVIDIA RTX 50, RTX PRO (Blackwell)"},
    CardTraits{Card::mi250, "mi250", "AMD MI250 (CDNA 2)"},
    CardTraits{Card::mi300, "mi300", "AMD MI300 (CDNA 3)"},
};

/// Cards with the matrix units of another one.
struct SameUnits {
  std::string_view name;
  Card card;
};
constexpr SameUnits kSameUnits[] = {{"h200", Card::h100},   {"gh200", Card::h100},   {"gb200", Card::b200},
                                    {"l40s", Card::ada},    {"mi300x", Card::mi300}, {"mi300a", Card::mi300},
                                    {"mi250x", Card::mi250}};

/// Returns an instruction of NVIDIA's cards.
constexpr Instruction nvidia(Card card, Scalar factor, std::string_view name, std::int64_t k,
                             std::int64_t group, int bits, bool f16, int result_bits = 23) {
  return {card, factor, name, k, group, GroupSum::truncated, bits, result_bits, f16};
}

using enum Card;
constexpr auto kTf32 = Scalar::tf32, kF16 = Scalar::f16, kBf16 = Scalar::bf16, kE5m2 = Scalar::e5m2,
               kE4m3 = Scalar::e4m3, kF32 = Scalar::f32;

// Rows of a card and a format: the usual instruction first. An instruction that splits k into groups sums the
// lower half first.
constexpr std::array kInstructions = {
    nvidia(v100, kF16, "mma.m8n8k4", 4, 4, 23, true),

    nvidia(a100, kF16, "mma.m16n8k16", 16, 8, 24, true),
    nvidia(a100, kF16, "mma.m16n8k8", 8, 8, 24, true),
    nvidia(a100, kBf16, "mma.m16n8k16", 16, 8, 24, false),
    nvidia(a100, kBf16, "mma.m16n8k8", 8, 8, 24, false),
    nvidia(a100, kTf32, "mma.m16n8k8", 8, 4, 24, false),
    nvidia(a100, kTf32, "mma.m16n8k4", 4, 4, 24, false),

    nvidia(ada, kF16, "mma.m16n8k16", 16, 8, 24, true),
    nvidia(ada, kF16, "mma.m16n8k8", 8, 8, 24, true),
    nvidia(ada, kBf16, "mma.m16n8k16", 16, 8, 24, false),
    nvidia(ada, kBf16, "mma.m16n8k8", 8, 8, 24, false),
    nvidia(ada, kTf32, "mma.m16n8k8", 8, 4, 24, false),
    nvidia(ada, kTf32, "mma.m16n8k4", 4, 4, 24, false),
    nvidia(ada, kE5m2, "mma.m16n8k32", 32, 16, 13, true, 13),
    nvidia(ada, kE5m2, "mma.m16n8k16", 16, 16, 13, true, 13),
    nvidia(ada, kE4m3, "mma.m16n8k32", 32, 16, 13, true, 13),
    nvidia(ada, kE4m3, "mma.m16n8k16", 16, 16, 13, true, 13),

    nvidia(h100, kF16, "wgmma.k16", 16, 16, 25, true),
    nvidia(h100, kF16, "mma.m16n8k8", 8, 8, 25, true),
    nvidia(h100, kBf16, "wgmma.k16", 16, 16, 25, false),
    nvidia(h100, kBf16, "mma.m16n8k8", 8, 8, 25, false),
    nvidia(h100, kTf32, "wgmma.k8", 8, 8, 25, false),
    nvidia(h100, kTf32, "mma.m16n8k4", 4, 4, 25, false),
    nvidia(h100, kE5m2, "wgmma.k32", 32, 32, 13, true, 13),
    nvidia(h100, kE4m3, "wgmma.k32", 32, 32, 13, true, 13),

    nvidia(b200, kF16, "tcgen05.mma.k16", 16, 16, 25, true),
    nvidia(b200, kF16, "mma.m16n8k8", 8, 8, 25, true),
    nvidia(b200, kBf16, "tcgen05.mma.k16", 16, 16, 25, false),
    nvidia(b200, kBf16, "mma.m16n8k8", 8, 8, 25, false),
    nvidia(b200, kTf32, "tcgen05.mma.k8", 8, 8, 25, false),
    nvidia(b200, kTf32, "mma.m16n8k4", 4, 4, 25, false),
    nvidia(b200, kE5m2, "tcgen05.mma.k32", 32, 32, 25, true),
    nvidia(b200, kE4m3, "tcgen05.mma.k32", 32, 32, 25, true),

    nvidia(rtx_blackwell, kF16, "mma.m16n8k16", 16, 16, 25, true),
    nvidia(rtx_blackwell, kF16, "mma.m16n8k8", 8, 8, 25, true),
    nvidia(rtx_blackwell, kBf16, "mma.m16n8k16", 16, 16, 25, false),
    nvidia(rtx_blackwell, kBf16, "mma.m16n8k8", 8, 8, 25, false),
    nvidia(rtx_blackwell, kTf32, "mma.m16n8k8", 8, 8, 25, false),
    nvidia(rtx_blackwell, kTf32, "mma.m16n8k4", 4, 4, 25, false),
    nvidia(rtx_blackwell, kE5m2, "mma.m16n8k32", 32, 32, 25, true),
    nvidia(rtx_blackwell, kE5m2, "mma.m16n8k16", 16, 16, 25, true),
    nvidia(rtx_blackwell, kE4m3, "mma.m16n8k32", 32, 32, 25, true),
    nvidia(rtx_blackwell, kE4m3, "mma.m16n8k16", 16, 16, 25, true),

    Instruction{mi250, kF16, "v_mfma_f32_32x32x8f16", 8, 4, GroupSum::pairs},
    Instruction{mi250, kF16, "v_mfma_f32_32x32x4f16", 4, 4, GroupSum::pairs},
    Instruction{mi250, kBf16, "v_mfma_f32_32x32x8bf16_1k", 8, 4, GroupSum::pairs},
    Instruction{mi250, kBf16, "v_mfma_f32_32x32x4bf16", 4, 2, GroupSum::pairs},
    Instruction{mi250, kF32, "v_mfma_f32_32x32x2f32", 2, 1, GroupSum::fma},

    Instruction{mi300, kF16, "v_mfma_f32_32x32x8_f16", 8, 8, GroupSum::floored},
    Instruction{mi300, kF16, "v_mfma_f32_32x32x4_2b_f16", 4, 4, GroupSum::floored},
    Instruction{mi300, kBf16, "v_mfma_f32_32x32x8_bf16", 8, 8, GroupSum::floored},
    Instruction{mi300, kBf16, "v_mfma_f32_32x32x4_2b_bf16", 4, 4, GroupSum::floored},
    Instruction{mi300, kTf32, "v_mfma_f32_32x32x4_xf32", 4, 4, GroupSum::floored},
    Instruction{mi300, kE5m2, "v_mfma_f32_32x32x16_bf8_bf8", 16, 16, GroupSum::floored_halves},
    Instruction{mi300, kE4m3, "v_mfma_f32_32x32x16_fp8_fp8", 16, 16, GroupSum::floored_halves},
    Instruction{mi300, kF32, "v_mfma_f32_32x32x2_f32", 2, 1, GroupSum::fma},
};

constexpr BlockInstruction kBlockInstructions[] = {
    {b200, "tcgen05.mma.mxf8f6f4.k32", 32, 25, false},
    {b200, "tcgen05.mma.mxf4nvf4.k64", 64, 35, true},
    {rtx_blackwell, "mma.mxf8f6f4.m16n8k32", 32, 25, false},
    {rtx_blackwell, "mma.mxf4nvf4.m16n8k64", 64, 35, true},
};

constexpr bool in_8_bits(Scalar s) {
  return bytes_of(s) == 1;
}

}  // namespace

std::span<const CardTraits> cards() {
  return kCards;
}

std::string_view name(Card card) {
  return card == Card::none ? std::string_view() : kCards[static_cast<std::size_t>(card) - 1].name;
}

std::optional<Card> parse_card(std::string_view name) {
  const auto is_named = [&](const auto& card) { return is_same_name(name, card.name); };
  if (const auto* found = std::ranges::find_if(kCards, is_named); found != kCards.end()) return found->card;
  const auto* other = std::ranges::find_if(kSameUnits, is_named);
  return other == std::end(kSameUnits) ? std::nullopt : std::optional(other->card);
}

std::span<const Instruction> instructions() {
  return kInstructions;
}

std::optional<Scalar> factor_on(Card card, Scalar a, Scalar b) {
  if (in_8_bits(a) && !in_8_bits(b)) a = b;
  if (a != b && !in_8_bits(b)) return std::nullopt;
  return find_instruction(card, a) == nullptr ? std::nullopt : std::optional(a);
}

const Instruction* find_instruction(Card card, Scalar factor, std::int64_t k) {
  const auto* found = std::ranges::find_if(kInstructions, [&](const Instruction& i) {
    return i.card == card && i.factor == factor && (k == 0 || i.k == k);
  });
  return found == kInstructions.end() ? nullptr : found;
}

std::span<const BlockInstruction> block_instructions() {
  return kBlockInstructions;
}

const BlockInstruction* find_block_instruction(Card card, BlockFormat a, BlockFormat b) {
  const bool fours = a == b && traits(a).element_bits == 4;
  // Scales in e4m3 are of nvfp4 alone.
  if (!fours && (!traits(a).power_of_two_scale || !traits(b).power_of_two_scale)) return nullptr;
  const auto* found = std::ranges::find_if(
      kBlockInstructions, [&](const BlockInstruction& i) { return i.card == card && i.fours == fours; });
  return found == std::end(kBlockInstructions) ? nullptr : found;
}

std::string factors_of(Card card) {
  std::string text;
  for (const Scalar s : kScalars) {
    if (find_instruction(card, s) == nullptr) continue;
    if (!text.empty()) text += ", ";
    text += name(s);
  }
  bool first = true;
  for (const BlockFormat f : kBlockFormats) {
    if (find_block_instruction(card, f, f) == nullptr) continue;
    text += first ? ", and blocks of " : ", ";
    text += traits(f).name;
    first = false;
  }
  return text;
}

}  // namespace mantissa
