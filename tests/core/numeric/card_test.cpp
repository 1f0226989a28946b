// Compares the sums of cards with MMA-Sim's (tools/golden_cards.py writes the file).
#include "mantissa/core/numeric/card.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "core/numeric/card_vectors.h"

namespace mantissa {
namespace {

using card_vectors::Case;

void expect_equal(const Case& c) {
  std::size_t differ = 0;
  for (std::size_t t = 0; t < c.tiles; ++t) {
    for (std::size_t i = 0; i < c.side; ++i) {
      for (std::size_t j = 0; j < c.side; ++j) {
        const std::size_t at = (t * c.side + i) * c.side + j;
        const float got = card_dot(c.sum, c.row(c.a, t, i), c.row(c.b, t, j), c.c[at]);
        if (card_vectors::same(c.card, got, c.d[at])) continue;
        if (differ++ == 0)
          ADD_FAILURE() << c.name << " tile " << t << " (" << i << ", " << j << "): " << std::hexfloat << got
                        << ", expected " << c.d[at] << ", accumulator " << c.c[at];
      }
    }
  }
  EXPECT_EQ(differ, 0) << c.name;
}

TEST(Cards, EqualMmaSim) {
  const std::vector<Case> all =
      card_vectors::cases(std::filesystem::path(MANTISSA_SOURCE_DIR) / "tests/golden/cards.safetensors");
  for (const Case& c : all) expect_equal(c);
  // Every instruction has vectors.
  std::set<const Instruction*> tested;
  std::set<std::pair<Card, std::int64_t>> of_blocks;
  for (const Case& c : all) {
    if (c.blocks) {
      of_blocks.insert({c.card, c.sum.k});
      continue;
    }
    const Instruction* i = find_instruction(c.card, c.a_format, c.sum.k);
    ASSERT_NE(i, nullptr) << c.name;
    tested.insert(i);
  }
  EXPECT_EQ(tested.size(), instructions().size());
  EXPECT_EQ(of_blocks.size(), block_instructions().size());
}

TEST(Cards, MultiplyBlocksWithScalesOfOneKind) {
  const Accumulator b200(Card::b200, Scalar::f32, 0);
  EXPECT_EQ(find_card_sum(b200, BlockFormat::nvfp4, BlockFormat::nvfp4)->bits, 35);
  EXPECT_EQ(find_card_sum(b200, BlockFormat::mxfp4, BlockFormat::mxfp4)->group, 64);
  EXPECT_EQ(find_card_sum(b200, BlockFormat::mxfp4, BlockFormat::mxfp8)->group, 32);
  EXPECT_EQ(find_card_sum(b200, BlockFormat::mxfp6_e2m3, BlockFormat::mxfp8)->least_a, 0);
  EXPECT_EQ(find_card_sum({Card::b200, Scalar::f32, 128}, BlockFormat::mxfp8, BlockFormat::mxfp8)->promotion,
            128);
  EXPECT_FALSE(find_card_sum(b200, BlockFormat::nvfp4, BlockFormat::mxfp8));
  EXPECT_FALSE(find_card_sum({Card::b200, Scalar::f16, 0}, BlockFormat::mxfp8, BlockFormat::mxfp8));
  EXPECT_FALSE(find_card_sum({Card::h100, Scalar::f32, 0}, BlockFormat::mxfp8, BlockFormat::mxfp8));
}

/// Sums of 16 products with scales of 1 and 1.125, by hand.
TEST(Cards, SumsOf16ProductsAreExact) {
  const CardSum sum = *find_card_sum({Card::b200, Scalar::f32, 0}, BlockFormat::nvfp4, BlockFormat::nvfp4);
  const std::uint8_t one = 0x38, and_an_eighth = 0x39;  // e4m3: 1 and 1.125
  std::vector<float> a(16, coded_element(6, one)), b(16, coded_element(6, and_an_eighth));
  EXPECT_EQ(card_dot(sum, a, b), 16 * 36 * 1.125F);
  a.assign(16, coded_element(0.5, one));
  b.assign(16, coded_element(0, one));
  b[0] = coded_element(0.5, and_an_eighth);
  EXPECT_EQ(card_dot(sum, a, b, 0x1p30F) - 0x1p30F, 0);
  b.assign(16, coded_element(-0.5, and_an_eighth));
  EXPECT_EQ(card_dot(sum, a, b, 4.5F), 0);
  EXPECT_FALSE(std::signbit(card_dot(sum, a, b, 4.5F)));
}

// A larger file: tools/check_cards.py
TEST(SlowCards, EqualOtherVectorsOfMmaSim) {
  const char* path = std::getenv("MANTISSA_CARD_VECTORS");
  if (path == nullptr) GTEST_SKIP() << "MANTISSA_CARD_VECTORS names no file of tools/golden_cards.py";
  for (const Case& c : card_vectors::cases(path)) expect_equal(c);
}

TEST(Cards, KNamesAnInstructionOrALoopAroundIt) {
  const auto sum = [](std::int64_t k, Scalar f = Scalar::bf16) {
    return find_card_sum({Card::h100, Scalar::f32, k}, f, f);
  };
  EXPECT_EQ(sum(0), sum(16));
  EXPECT_EQ(sum(8)->group, 8);
  EXPECT_EQ(sum(64)->group, 16);
  EXPECT_EQ(sum(64)->promotion, 64);
  EXPECT_EQ(sum(128, Scalar::e4m3)->promotion, 128);
  EXPECT_FALSE(sum(24)) << "no power of two";
  EXPECT_FALSE(sum(4)) << "no such instruction";
  EXPECT_FALSE(sum(16, Scalar::e4m3)) << "shorter than the instruction";
}

TEST(Cards, FactorsHaveTheFormatOfAnInstruction) {
  EXPECT_EQ(factor_on(Card::h100, Scalar::bf16, Scalar::e4m3), Scalar::bf16);
  EXPECT_EQ(factor_on(Card::h100, Scalar::e5m2, Scalar::f16), Scalar::f16);
  EXPECT_EQ(factor_on(Card::h100, Scalar::e5m2, Scalar::e4m3), Scalar::e5m2);
  EXPECT_EQ(factor_on(Card::h100, Scalar::f32, Scalar::f32), std::nullopt);
  EXPECT_EQ(factor_on(Card::h100, Scalar::f16, Scalar::bf16), std::nullopt);
  EXPECT_EQ(factor_on(Card::v100, Scalar::bf16, Scalar::bf16), std::nullopt);
  EXPECT_EQ(factors_of(Card::v100), "f16");
  const Accumulator halves{Card::h100, Scalar::f16, 0};
  EXPECT_TRUE(find_card_sum(halves, Scalar::f16, Scalar::f16));
  EXPECT_FALSE(find_card_sum(halves, Scalar::bf16, Scalar::bf16)) << "bf16 has f32 accumulators only";
}

TEST(Cards, ResultsThatAreTruncatedToZeroArePositive) {
  const std::vector<float> a = {-0x1p-75F}, b = {0x1p-76F};  // one unit of the aligned sum, below f32
  const CardSum sum = *find_card_sum({Card::h100, Scalar::f32, 0}, Scalar::bf16, Scalar::bf16);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(card_dot(sum, a, b)), 0U);
}

TEST(Cards, PromotionAddsAccumulatorsInF32) {
  const std::vector<float> a(128, 1.0F), b(128, 0x1p-14F);
  const auto dot = [&](std::int64_t k, float c) {
    return card_dot(*find_card_sum({Card::h100, Scalar::f32, k}, Scalar::e4m3, Scalar::e4m3), a, b, c);
  };
  // An accumulator of 13 fraction bits next to 2 keeps no terms of 2^-14; their own sum is exact.
  EXPECT_EQ(dot(0, 2.0F), 2.0F);
  EXPECT_EQ(dot(64, 2.0F), 2.0F + 0x1p-7F);
}

}  // namespace
}  // namespace mantissa
