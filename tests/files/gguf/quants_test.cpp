// Dequantization against golden values, and quantization against golden codes.
#include "mantissa/files/gguf/quants.h"

#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "files/gguf/golden_quants.h"
#include "mantissa/core/numeric/quantize_blocks.h"
#include "mantissa/core/numeric/scaled.h"

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

TEST(Quantize, CodesAndScalesAreThoseOfGgml) {
  std::vector<float> values;
  for (const std::uint32_t bits : kGoldenValues) values.push_back(std::bit_cast<float>(bits));
  for (const auto& [format, golden] :
       {std::pair{QuantFormat::q8_0, kGoldenCodes}, {QuantFormat::q4_0, kGoldenCodesQ4}}) {
    std::vector<std::uint8_t> codes(golden.size());
    const std::size_t blocks = golden.size() / mantissa::traits(format).bytes;
    ASSERT_EQ(quantize_blocks(format, values.data(), blocks * kQuantBlock, codes.data()), blocks);
    EXPECT_EQ(codes, golden) << mantissa::traits(format).name;
  }
}

TEST(Quantize, Mxfp4HasTheValuesOfItsBlocks) {
  std::vector<float> values;
  for (const std::uint32_t bits : kGoldenValues) values.push_back(std::bit_cast<float>(bits));
  for (const float scale : {1.0F, 0x1p-140F, 0x1p100F}) {
    std::vector<float> x = values;
    for (float& v : x) v *= scale;
    std::vector<std::byte> stored(x.size() / 32 * traits(TensorType::mxfp4).bytes);
    ASSERT_TRUE(quantize(TensorType::mxfp4, x.data(), x.size(), stored.data()));
    std::vector<float> decoded(x.size());
    dequantize(TensorType::mxfp4, stored.data(), x.size() / 32, decoded.data());
    for (std::size_t b = 0; b < x.size(); b += 32) round_blocks(BlockFormat::mxfp4, x.data() + b, 32);
    EXPECT_EQ(decoded, x) << scale;
  }
  values[40] = std::numeric_limits<float>::infinity();
  std::vector<std::byte> stored(values.size() / 32 * traits(TensorType::mxfp4).bytes);
  EXPECT_FALSE(quantize(TensorType::mxfp4, values.data(), values.size(), stored.data()));
}

TEST(Quantize, StopsBeforeABlockThatTheFormatCannotHold) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  std::vector<std::uint8_t> out(2 * 34);
  // The largest f16 is 65504, to which values below 65520 round: 65520 · 127 = 8,321,040.
  for (const auto& [value, holds] : {std::pair{8'321'000.0F, true}, {8'321'100.0F, false}, {kInf, false}}) {
    std::vector<float> values(2 * kQuantBlock, 1);
    values[kQuantBlock + 7] = value;
    EXPECT_EQ(quantize_blocks(QuantFormat::q8_0, values.data(), values.size(), out.data()), holds ? 2U : 1U)
        << value;
  }
}

}  // namespace
}  // namespace mantissa::gguf
