// The model of AMX's tiles has the documented arithmetic, and the bits of the instructions: of the
// processor's own tiles where it has them, else of the emulator, which runs the same assembly.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <random>
#include <vector>

#include "kernels/amx_emulator.h"
#include "mantissa/kernels/cpu/tiles/amx_tiles.h"
#include "mantissa/kernels/cpu/tiles/model_tiles.h"

namespace mantissa::kernels::amx_tiles_test {
namespace {

constexpr unsigned kSeed = 11;
constexpr std::size_t kEdge = kTileRegisterRows, kTerms = 32;

std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

/// A and B as tiles of bf16, and C.
struct Product {
  std::array<std::array<std::uint16_t, kTerms>, kEdge> a{}, b{};
  std::array<std::array<float, kEdge>, kEdge> c{};

  /// Fills them with numbers whose exponents lie in [least, least + spread) for A and B, and [of_c, of_c +
  /// spread) for C. One number in eight is zero.
  void fill(std::mt19937& random, int least, int of_c, unsigned spread) {
    const auto draw = [&](int from) {
      const double fraction = 1 + std::ldexp(static_cast<double>(random() % 128), -7);
      const double x = std::ldexp(fraction, from + static_cast<int>(random() % spread));
      return static_cast<float>(random() % 8 == 0 ? 0 : (random() % 2 == 0 ? x : -x));
    };
    for (auto* tile : {&a, &b}) {
      for (auto& row : *tile) {
        for (std::uint16_t& x : row) {
          x = static_cast<std::uint16_t>(bits_of(draw(least)) >> 16U);
        }
      }
    }
    for (auto& row : c) {
      for (float& x : row) x = draw(of_c) * 1.0009765F;
    }
  }

  template <class Tiles>
  void add_product() {
    const typename Tiles::Scope scope;
    Tiles t;
    t.template load<1>(c.data(), sizeof c[0]);
    t.template load<5>(a.data(), sizeof a[0]);
    t.template load<6>(b.data(), sizeof b[0]);
    t.template multiply_add<1, 5, 6>();
    t.template store<1>(c.data(), sizeof c[0]);
  }
};

float value(std::uint16_t bf16) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bf16) << 16U);
}

TEST(ModelTiles, AddOneChainOfEvenAndOneOfOddTerms) {
  std::mt19937 random(kSeed);
  Product p;
  p.fill(random, -4, 0, 8);
  Product after = p;
  after.add_product<ModelTiles>();
  for (std::size_t i = 0; i < kEdge; ++i) {
    for (std::size_t j = 0; j < kEdge; ++j) {
      std::array<float, 2> chains{};
      for (std::size_t k = 0; k < kTerms; ++k)
        chains[k % 2] = std::fma(value(p.a[i][k]), value(p.b[k / 2][2 * j + k % 2]), chains[k % 2]);
      EXPECT_EQ(after.c[i][j], p.c[i][j] + (chains[0] + chains[1])) << i << ", " << j;
    }
  }
}

TEST(ModelTiles, TakeSubnormalNumbersAsZero) {
  constexpr float kTiny = 0x1p-127F;
  Product p;
  p.c[0][0] = kTiny;  // a subnormal sum
  p.c[0][1] = 0x1.8p-126F;
  p.a[0][0] = 0x8080;  // -2^-126
  p.b[0][2] = 0x3f80;  // 1: a subnormal result, 2^-127
  p.a[1][0] = 0x0040;  // a subnormal factor, 2^-127
  p.b[0][0] = 0x4080;  // 4
  p.add_product<ModelTiles>();
  EXPECT_EQ(p.c[0][0], -0x1p-124F);
  EXPECT_EQ(p.c[0][1], 0);
  EXPECT_EQ(p.c[1][0], 0);
}

TEST(ModelTiles, FlushWhatIsTinyAfterRoundingTo24Bits) {
  const auto sum = [](std::uint16_t last) {
    Product p;
    p.a[0][0] = p.b[0][0] = 0x2000;  // 2^-63
    p.a[0][2] = 0x8d80;              // -2^-100
    p.b[1][0] = last;
    p.add_product<ModelTiles>();
    return p.c[0][0];
  };
  EXPECT_EQ(sum(0x2680), 0);          // 2^-50: 2^-126 less 2^-150, which 24 bits hold
  EXPECT_EQ(sum(0x2600), 0x1p-126F);  // 2^-51: rounds to 2^-126
}

#if defined(__x86_64__)

/// The instructions, and the model.
class TileInstructions : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::tile_hardware() == testing::TileHardware::none)
      GTEST_SKIP() << "this machine can neither run nor emulate tile instructions; only the model runs here";
  }
};

/// Returns true for equal bits. Any NaN equals any other one, because the manual does not say which NaN
/// results. Nor does it document the sign of a zero that stands for a subnormal number.
bool same(float model, float real, bool tiny) {
  if (std::isnan(model) || std::isnan(real)) return std::isnan(model) && std::isnan(real);
  const bool any_zero = tiny && testing::tile_hardware() == testing::TileHardware::processor;
  return bits_of(model) == bits_of(real) || (any_zero && model == real);
}

void expect_bits_of_model(const Product& p, bool tiny) {
  Product of_model = p, real = p;
  of_model.add_product<ModelTiles>();
  real.add_product<HardwareTiles>();
  for (std::size_t i = 0; i < kEdge; ++i) {
    for (std::size_t j = 0; j < kEdge; ++j) {
      ASSERT_TRUE(same(of_model.c[i][j], real.c[i][j], tiny))
          << of_model.c[i][j] << " by the model, and " << real.c[i][j] << " at " << i << ", " << j;
    }
  }
}

TEST_F(TileInstructions, MultiplyAsTheModelDoes) {
  std::mt19937 random(kSeed);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(::testing::Message() << "round " << round << ", seed " << kSeed);
    const bool tiny = round % 3 == 2;
    Product p;
    if (tiny) {
      p.fill(random, -66, -130, 8);  // products, sums and C are subnormal in part
    } else {
      p.fill(random, -20, -10, round % 3 == 0 ? 1 : 30);
    }
    expect_bits_of_model(p, tiny);
  }
}

TEST_F(TileInstructions, TreatSpecialNumbersAsTheModelDoes) {
  constexpr std::uint16_t kSpecial[] = {0x0000, 0x8000, 0x0001, 0x807f, 0x0080, 0x8080, 0x7f7f,
                                        0xff7f, 0x7f80, 0xff80, 0x7fc0, 0xff81, 0x3f80, 0xbf80};
  std::mt19937 random(kSeed);
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(::testing::Message() << "round " << round << ", seed " << kSeed);
    Product p;
    p.fill(random, -8, -8, 16);
    const auto special = [&](std::uint16_t& x) { x = kSpecial[random() % std::size(kSpecial)]; };
    // Few, so that most sums hold at most one.
    for (auto* tile : {&p.a, &p.b}) {
      for (auto& row : *tile) special(row[random() % kTerms]);
    }
    for (auto& row : p.c) {
      std::uint16_t high = 0;
      special(high);
      row[random() % kEdge] = value(high);
    }
    expect_bits_of_model(p, true);
  }
}

TEST_F(TileInstructions, KeepTheSignsOfZeros) {
  // +0 + (+0 · −0) = +0, and a C of −0 + +0 = +0: a product never leaves −0, but a load and a store do.
  Product p;
  for (auto& row : p.c) row.fill(-0.0F);
  Product after = p;
  {
    const HardwareTiles::Scope scope;
    HardwareTiles t;
    t.load<3>(p.c.data(), sizeof p.c[0]);
    t.store<3>(after.c.data(), sizeof after.c[0]);
  }
  EXPECT_EQ(bits_of(after.c[15][15]), 0x80000000U);
  p.a[0].fill(0x8000);
  expect_bits_of_model(p, false);
  p.add_product<HardwareTiles>();
  EXPECT_EQ(bits_of(p.c[0][0]), 0U);
}

TEST_F(TileInstructions, IgnoreTheRoundingOfOtherInstructions) {
  std::mt19937 random(kSeed);
  Product p;
  p.fill(random, -20, -10, 30);
  Product expected = p, got = p;
  expected.add_product<HardwareTiles>();
  const unsigned before = __builtin_ia32_stmxcsr();
  constexpr unsigned kTowardsZero = 3U << 13U, kFlush = 0x8040U;
  __builtin_ia32_ldmxcsr(before | kTowardsZero | kFlush);
  got.add_product<HardwareTiles>();
  const unsigned after = __builtin_ia32_stmxcsr();
  __builtin_ia32_ldmxcsr(before);
  constexpr unsigned kFlags = 0x3f;
  EXPECT_EQ(after & ~kFlags, (before | kTowardsZero | kFlush) & ~kFlags);
  EXPECT_EQ(got.c, expected.c);
}

/// Moves each of the eight tiles to another place, with rows that lie apart.
template <class Tiles, int kTile = 0>
void move_all(const std::uint8_t* from, std::size_t stride, std::uint8_t* to, std::size_t to_stride) {
  if constexpr (kTile < 8) {
    Tiles t;
    t.template load<kTile>(from + kTile, stride);
    move_all<Tiles, kTile + 1>(from, stride, to, to_stride);  // no load changes another tile
    t.template store<kTile>(to + kTile * kTileRegisterRows * to_stride, to_stride);
  }
}

TEST_F(TileInstructions, LoadAndStoreRowsAtAnyDistance) {
  constexpr std::size_t kRows = kTileRegisterRows;
  std::mt19937 random(kSeed);
  for (const std::size_t stride : {std::size_t{0}, std::size_t{1}, kTileRowBytes, std::size_t{100}}) {
    for (const std::size_t to_stride : {kTileRowBytes, std::size_t{67}, std::size_t{256}}) {
      std::vector<std::uint8_t> from(kRows * stride + kTileRowBytes + 8);
      for (std::uint8_t& x : from) x = static_cast<std::uint8_t>(random());
      std::vector<std::uint8_t> to(8 * kRows * to_stride, 0xee);
      std::vector<std::uint8_t> expected = to;
      for (std::size_t t = 0; t < 8; ++t) {
        for (std::size_t i = 0; i < kRows; ++i)
          std::copy_n(&from[t + i * stride], kTileRowBytes, &expected[(t * kRows + i) * to_stride]);
      }
      const HardwareTiles::Scope scope;
      move_all<HardwareTiles>(from.data(), stride, to.data(), to_stride);
      EXPECT_EQ(to, expected) << "rows " << stride << " bytes apart, stored " << to_stride << " apart";
    }
  }
}

TEST_F(TileInstructions, StartFromZerosInEveryScope) {
  std::array<std::array<std::uint8_t, kTileRowBytes>, kTileRegisterRows> ones{}, got{};
  for (auto& row : ones) row.fill(1);
  for (const bool clears : {false, true}) {
    {
      const HardwareTiles::Scope scope;
      HardwareTiles t;
      t.load<7>(ones.data(), kTileRowBytes);
      if (clears) t.zero<7>();
      t.store<7>(got.data(), kTileRowBytes);
      EXPECT_EQ(got[15][63], clears ? 0 : 1);
    }
    const HardwareTiles::Scope scope;
    HardwareTiles t;
    t.store<7>(got.data(), kTileRowBytes);
    EXPECT_EQ(got[15][63], 0);
    got = ones;
  }
}

/// Returns C + A · B, and A and B as the instruction leaves them, from the tiles kC, kA and kB.
template <class Tiles, int kC, int kA, int kB>
Product product_in(const Product& p) {
  Product to = p;
  const typename Tiles::Scope scope;
  Tiles t;
  t.template load<kC>(p.c.data(), kTileRowBytes);
  t.template load<kA>(p.a.data(), kTileRowBytes);
  t.template load<kB>(p.b.data(), kTileRowBytes);
  t.template multiply_add<kC, kA, kB>();
  t.template store<kC>(to.c.data(), kTileRowBytes);
  t.template store<kA>(to.a.data(), kTileRowBytes);
  t.template store<kB>(to.b.data(), kTileRowBytes);
  return to;
}

template <int kC, int kA, int kB>
void expect_operands() {
  std::mt19937 random(kSeed);
  Product p;
  p.fill(random, -4, 0, 8);
  const Product model = product_in<ModelTiles, kC, kA, kB>(p),
                real = product_in<HardwareTiles, kC, kA, kB>(p);
  EXPECT_EQ(real.c, model.c) << kC << ", " << kA << ", " << kB;
  EXPECT_EQ(real.a, p.a);
  EXPECT_EQ(real.b, p.b);
}

TEST_F(TileInstructions, TakeCAAndBInTheirOrder) {
  expect_operands<0, 4, 6>();
  expect_operands<1, 4, 7>();
  expect_operands<2, 5, 6>();
  expect_operands<3, 5, 7>();
  expect_operands<7, 0, 1>();
  expect_operands<6, 3, 2>();
}

#endif

}  // namespace
}  // namespace mantissa::kernels::amx_tiles_test
