// The model of AMX's tiles has the documented arithmetic, and the bits of the processor's own tiles.
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <random>

#include "mantissa/kernels/cpu/amx_tiles.h"
#include "mantissa/kernels/cpu/model_tiles.h"

namespace mantissa::kernels {
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

TEST(ModelTiles, HaveTheBitsOfTheProcessor) {
#if defined(__x86_64__)
  if (!has_amx_tiles()) GTEST_SKIP() << "this processor has no AMX for bf16; only the model runs here";
  std::mt19937 random(kSeed);
  for (int round = 0; round < 300; ++round) {
    const bool tiny = round % 3 == 2;
    Product p;
    if (tiny) {
      p.fill(random, -66, -130, 8);  // products, sums and C are subnormal in part
    } else {
      p.fill(random, -20, -10, round % 3 == 0 ? 1 : 30);
    }
    Product q = p;
    p.add_product<ModelTiles>();
    q.add_product<HardwareTiles>();
    for (std::size_t i = 0; i < kEdge; ++i) {
      for (std::size_t j = 0; j < kEdge; ++j) {
        // The sign of a zero that stands for a subnormal number is not documented.
        const float model = p.c[i][j], real = q.c[i][j];
        const bool same = bits_of(model) == bits_of(real) || (tiny && model == real);
        ASSERT_TRUE(same) << model << " and " << real << ", round " << round << ", seed " << kSeed;
      }
    }
  }
#else
  GTEST_SKIP() << "AMX is an extension of x86-64; only the model runs here";
#endif
}

}  // namespace
}  // namespace mantissa::kernels
