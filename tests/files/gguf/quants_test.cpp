// Dequantization against golden values, and Q8_0 against golden codes.
#include "mantissa/files/gguf/quants.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "files/gguf/golden_quants.h"

namespace mantissa::gguf {
namespace {

std::uint64_t fnv(const std::vector<float>& values) {
  std::uint64_t state = 0xCBF29CE484222325;
  for (const float value : values) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) state = (state ^ (bits >> shift & 0xFFU)) * 0x100000001B3;
  }
  return state;
}

std::string type_name(const ::testing::TestParamInfo<GoldenBlocks>& info) {
  return lower_name(traits(info.param.type));
}

class Dequantize : public ::testing::TestWithParam<GoldenBlocks> {};

TEST_P(Dequantize, GivesTheBitsOfGgml) {
  const GoldenBlocks& golden = GetParam();
  const TypeTraits& type = traits(golden.type);
  const std::size_t blocks = golden.stored.size() / type.bytes;
  std::vector<float> values(blocks * type.block);
  dequantize(golden.type, std::as_bytes(std::span(golden.stored)).data(), blocks, values.data());
  for (std::size_t i = 0; i < golden.first.size(); ++i) {
    const float value = values[i / 8 * type.block + i % 8];
    EXPECT_EQ(std::bit_cast<std::uint32_t>(value), golden.first[i])
        << "block " << i / 8 << " value " << i % 8;
  }
  EXPECT_EQ(fnv(values), golden.hash);
}

TEST_P(Dequantize, OfProductsGivesTheSameBits) {
  const GoldenBlocks& golden = GetParam();
  const std::optional<QuantFormat> format = quant_format(golden.type);
  if (!format) GTEST_SKIP() << "this type is dequantized when it is loaded";
  const TypeTraits& type = mantissa::gguf::traits(golden.type);
  const QuantTraits product = mantissa::traits(*format);
  EXPECT_EQ(product.name, lower_name(type));
  EXPECT_EQ(product.bytes, type.bytes);
  EXPECT_EQ(kQuantBlock, type.block);
  std::vector<float> values(golden.stored.size() / type.bytes * type.block);
  for (const SimdTarget target : simd_targets()) {
    mantissa::dequantize({*format, values.size(), golden.stored.data(), nullptr}, 0, 0, values.size(),
                         values.data(), target);
    EXPECT_EQ(fnv(values), golden.hash);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Dequantize, ::testing::ValuesIn(kGoldenBlocks), type_name);

TEST(Q8, CodesAndScalesAreThoseOfGgml) {
  std::vector<float> values;
  for (const std::uint32_t bits : kGoldenValues) values.push_back(std::bit_cast<float>(bits));
  std::vector<std::uint8_t> codes(kGoldenCodes.size());
  ASSERT_TRUE(quantize_q8_0(values.data(), values.size(), std::as_writable_bytes(std::span(codes)).data()));
  EXPECT_EQ(codes, kGoldenCodes);
}

TEST(Q8, RefusesValuesThatItCannotHold) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<std::byte> out(34);
  // The largest f16 is 65504, to which values below 65520 round: 65520 · 127 = 8,321,040.
  for (const auto& [value, holds] : {std::pair{8'321'000.0F, true}, {8'321'100.0F, false}, {kInf, false}}) {
    std::vector<float> values(32, 1);
    values[7] = value;
    EXPECT_EQ(quantize_q8_0(values.data(), 32, out.data()), holds) << value;
  }
}

}  // namespace
}  // namespace mantissa::gguf
