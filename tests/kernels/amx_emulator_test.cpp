// The emulator of AMX's tile instructions: arithmetic, encodings from the assembler, faults, threads.
#include "kernels/amx_emulator.h"

#include <gtest/gtest.h>

#if defined(__x86_64__) && defined(__linux__)

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "kernels/amx_arithmetic.h"
#include "kernels/amx_instruction.h"
#include "kernels/amx_machine.h"
#include "mantissa/kernels/context.h"
#include "mantissa/kernels/cpu/tiles/amx_tiles.h"
#include "mantissa/kernels/cpu/tiles/model_tiles.h"

namespace mantissa::kernels::testing::amx_emulator_test {
namespace {

constexpr unsigned kSeed = 20261123;

std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
float as_float(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
float flushed(float x) {
  return std::abs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0F, x) : x;
}

// ---- Arithmetic

TEST(AmxArithmetic, RoundsOnceLikeAFusedMultiplyAdd) {
  std::mt19937 random(kSeed);
  for (int i = 0; i < 2'000'000; ++i) {
    const auto a = static_cast<std::uint32_t>(random()) & 0xffff0000U;
    const auto b = static_cast<std::uint32_t>(random()) & 0xffff0000U;
    // Half of the addends are close to the product in size, so that they cancel or meet in rounding.
    auto c = static_cast<std::uint32_t>(random());
    const float product = as_float(a) * as_float(b);
    if (i % 2 == 0 && std::isnormal(product)) c = (bits_of(product) ^ (random() & 0x81ffffffU));
    const float expected =
        flushed(std::fma(flushed(as_float(a)), flushed(as_float(b)), flushed(as_float(c))));
    const float got = as_float(amx::multiply_add(a, b, c));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got));
    } else if (std::abs(expected) != std::numeric_limits<float>::min()) {  // tiny or not: the next test
      ASSERT_EQ(bits_of(got), bits_of(expected))
          << as_float(a) << " · " << as_float(b) << " + " << as_float(c) << ", seed " << kSeed;
    }
  }
}

TEST(AmxArithmetic, FlushesWhatIsBelowTheLeastNormalNumberAfterRounding) {
  constexpr float kLeast = 0x1p-126F;
  const auto sum = [](float a, float b, float c) {
    return as_float(amx::multiply_add(bits_of(a), bits_of(b), bits_of(c)));
  };
  // 2^-126 less 2^-150, which 24 bits hold with a smaller exponent, and less 2^-151 and 2^-152, which round
  // up.
  EXPECT_EQ(sum(-0x1p-100F, 0x1p-50F, kLeast), 0);
  EXPECT_EQ(sum(-0x1p-100F, 0x1p-51F, kLeast), kLeast);
  EXPECT_EQ(sum(-0x1p-100F, 0x1p-52F, kLeast), kLeast);
  EXPECT_EQ(bits_of(sum(0x1p-100F, 0x1p-50F, -kLeast)), 0x80000000U);
  EXPECT_EQ(sum(0x1p-100F, 0x1p-26F, 0), kLeast);
  EXPECT_EQ(sum(0x1p-100F, 0x1p-27F, 0), 0);
}

TEST(AmxArithmetic, TakesSubnormalOperandsAsZeroWithTheirSign) {
  EXPECT_EQ(amx::add(0x80000001U, 0x80000000U), 0x80000000U);
  EXPECT_EQ(amx::add(0x80000001U, 0x00000001U), 0U);
  EXPECT_EQ(amx::multiply_add(0x00400000U, bits_of(0x1p100F), bits_of(3.0F)), bits_of(3.0F));
}

TEST(AmxArithmetic, ReturnsTheFirstNanQuiet) {
  constexpr std::uint32_t kInfinity = 0x7f800000U, kOne = 0x3f800000U;
  EXPECT_EQ(amx::multiply_add(kOne, 0xff810000U, 0x7f800001U), 0xffc10000U);
  EXPECT_EQ(amx::multiply_add(kOne, kOne, 0x7f800001U), 0x7fc00001U);
  EXPECT_EQ(amx::multiply_add(kInfinity, 0, kOne), 0xffc00000U);
  EXPECT_EQ(amx::add(kInfinity, kInfinity | 0x80000000U), 0xffc00000U);
  EXPECT_EQ(amx::add(kInfinity, kOne), kInfinity);
  EXPECT_EQ(amx::add(0x7f7fffffU, 0x7f7fffffU), kInfinity);
}

// ---- Encodings

class AmxInstructions : public ::testing::Test {
 protected:
  void SetUp() override {
    if (tile_hardware() == TileHardware::none) GTEST_SKIP() << "tile instructions cannot run here";
  }

  AmxInstructions() {
    for (std::size_t i = 0; i < memory_.size(); ++i) memory_[i] = static_cast<std::uint8_t>(i * 7 + i / 256);
  }
  /// Expects that tile 0 holds 16 rows from `first` on, `stride` bytes apart.
  void expect_tile(const std::uint8_t* first, std::size_t stride, const char* instruction) {
    HardwareTiles().store<0>(got_.data(), kTileRowBytes);
    for (std::size_t i = 0; i < kTileRegisterRows; ++i)
      EXPECT_TRUE(
          std::equal(first + i * stride, first + i * stride + kTileRowBytes, &got_[i * kTileRowBytes]))
          << instruction << ", row " << i;
  }

  alignas(64) std::array<std::uint8_t, 16384> memory_{};
  std::array<std::uint8_t, kTileRegisterRows * kTileRowBytes> got_{};
};

/// Executes "tileloadd OPERAND, %tmm0", where BASE and INDEX are the registers that the operand names.
#define MANTISSA_LOAD(operand, base, index, base_value, index_value)                 \
  __asm__ volatile("mov %0, %%" base "\n\tmov %1, %%" index "\n\ttileloadd " operand \
                   ", %%tmm0" ::"m"(base_value),                                     \
                   "m"(index_value)                                                  \
                   : base, index, "memory")

TEST_F(AmxInstructions, AddressEveryRegisterScaleAndDisplacement) {
  const HardwareTiles::Scope scope;
  const std::uint8_t* const base = memory_.data() + 1024;
  const std::size_t index = 72;
  const auto expect_load = [&](const std::uint8_t* first, std::size_t stride, const char* text) {
    expect_tile(first, stride, text);
    HardwareTiles().zero<0>();
  };
#define MANTISSA_EXPECT_LOAD(displacement, b, i, scale)                           \
  MANTISSA_LOAD(#displacement "(%%" b ",%%" i "," #scale ")", b, i, base, index); \
  expect_load(base + (displacement), index * (scale), #displacement "(" b "," i "," #scale ")")
  MANTISSA_EXPECT_LOAD(0, "rax", "rcx", 1);
  MANTISSA_EXPECT_LOAD(0, "rdx", "rax", 2);
  MANTISSA_EXPECT_LOAD(0, "rsi", "rdi", 4);
  MANTISSA_EXPECT_LOAD(0, "rdi", "rsi", 8);
  MANTISSA_EXPECT_LOAD(0, "r8", "r9", 1);
  MANTISSA_EXPECT_LOAD(0, "r12", "r13", 2);
  MANTISSA_EXPECT_LOAD(0, "r13", "r12", 1);
  MANTISSA_EXPECT_LOAD(0, "r10", "r11", 8);
  MANTISSA_EXPECT_LOAD(0, "r14", "r15", 1);
  MANTISSA_EXPECT_LOAD(0, "r15", "rdx", 1);
  MANTISSA_EXPECT_LOAD(0, "rcx", "r14", 4);
  MANTISSA_EXPECT_LOAD(127, "rax", "rcx", 1);
  MANTISSA_EXPECT_LOAD(-128, "r12", "rcx", 1);
  MANTISSA_EXPECT_LOAD(128, "r13", "r12", 1);
  MANTISSA_EXPECT_LOAD(-1000, "rdi", "r8", 2);
#undef MANTISSA_EXPECT_LOAD
  // Without an index all rows are the first.
  __asm__ volatile("tileloadd 64(%0), %%tmm0" ::"r"(base) : "memory");
  expect_load(base + 64, 0, "64(base)");
  // With a hint for the caches.
  __asm__ volatile("tileloaddt1 32(%0,%1,1), %%tmm0" ::"r"(base), "r"(index) : "memory");
  expect_load(base + 32, index, "tileloaddt1");
  // A negative stride, from the last row back.
  const std::ptrdiff_t back = -64;
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm0" ::"r"(base), "r"(back) : "memory");
  expect_load(base, static_cast<std::size_t>(back), "negative stride");
}
#undef MANTISSA_LOAD

/// Tiles of which only a part is configured, from an address that the program counter or an index gives.
alignas(64) constinit const std::uint8_t of_small_tiles[64] = {
    1,  0, 0,  0, 0,  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,  // palette 1
    12, 0, 28, 0, 12, 0, 0, 0,                          // bytes in a row of tiles 0 to 2: C, A, B
    0,  0, 0,  0, 0,  0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 5, 7};  // rows

TEST_F(AmxInstructions, MultiplyTilesOfOtherSizes) {
  const std::uint8_t* const before = of_small_tiles - 256;
  for (const bool of_program : {true, false}) {
    if (of_program) {
      __asm__ volatile("ldtilecfg %0" ::"m"(of_small_tiles) : "memory");
    } else {
      __asm__ volatile("ldtilecfg 192(%0,%1,8)" ::"r"(before), "r"(std::size_t{8}) : "memory");
    }
    constexpr std::uint32_t kOne = 0x3f80, kTwo = 0x4000;
    std::array<std::uint32_t, 5 * 7> a{};
    std::array<std::uint32_t, 7 * 3> b{};
    a.fill(kOne | kTwo << 16U);  // 1 and 2
    b.fill(kTwo | kTwo << 16U);
    b[3 * 2 + 1] = kOne;  // 1 and 0 of column 1
    std::array<float, 6 * 4> c{};
    c.fill(0.5F);
    HardwareTiles t;
    t.load<0>(c.data(), 16);
    t.load<1>(a.data(), 28);
    t.load<2>(b.data(), 12);
    t.multiply_add<0, 1, 2>();
    t.store<0>(c.data(), 16);
    __asm__ volatile("tilerelease" ::: "memory");
    for (std::size_t i = 0; i < 6; ++i) {
      for (std::size_t j = 0; j < 4; ++j) {
        const float sum = 0.5F + 7 * 6 - (j == 1 ? 5 : 0);
        EXPECT_EQ(c[i * 4 + j], i < 5 && j < 3 ? sum : 0.5F) << i << ", " << j;
      }
    }
  }
}

TEST_F(AmxInstructions, ChangeNoOtherRegister) {
  const HardwareTiles::Scope scope;
  std::array<std::uint64_t, 8> in{}, out{};
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = 0x0123456789abcdefU * (i + 1);
  std::uint64_t mask = 0;
  bool carry = false;
  if (!is_supported(Simd::avx512)) GTEST_SKIP();
  __asm__ volatile(
      "vmovdqu64 %3, %%zmm31\n\t"
      "kmovw %4, %%k5\n\t"
      "stc\n\t"
      "tilezero %%tmm0\n\t"
      "setc %2\n\t"
      "kmovw %%k5, %k1\n\t"
      "vmovdqu64 %%zmm31, %0"
      : "=m"(out), "=r"(mask), "=qm"(carry)
      : "m"(in), "r"(0xa5c3)
      : "cc", "memory");  // code for the lowest processor does not use zmm31 and k5
  EXPECT_EQ(out, in);
  EXPECT_EQ(mask, 0xa5c3U);
  EXPECT_TRUE(carry);
}

TEST_F(AmxInstructions, HaveTilesOfTheirOwnInEachThread) {
  constexpr int kThreads = 8, kRounds = 20;
  std::atomic<int> wrong = 0;
  const auto work = [&](int thread) {
    std::mt19937 random(kSeed + static_cast<unsigned>(thread));
    alignas(64) std::uint16_t a[16][32], b[16][32];
    float c[2][16][16] = {};
    for (int round = 0; round < kRounds; ++round) {
      for (auto* tile : {a, b}) {
        for (std::size_t i = 0; i < 16; ++i) {
          for (std::size_t k = 0; k < 32; ++k)
            tile[i][k] = static_cast<std::uint16_t>(0x3f00U + (random() & 0x80ffU));
        }
      }
      const auto add = [&](auto tiles, float(&to)[16][16]) {
        tiles.template load<0>(to, 64);
        tiles.template load<1>(a, 64);
        std::this_thread::yield();
        tiles.template load<2>(b, 64);
        tiles.template multiply_add<0, 1, 2>();
        std::this_thread::yield();
        tiles.template store<0>(to, 64);
      };
      {
        const HardwareTiles::Scope scope;
        add(HardwareTiles(), c[0]);
      }
      const ModelTiles::Scope scope;
      add(ModelTiles(), c[1]);
    }
    if (std::memcmp(c[0], c[1], sizeof c[0]) != 0) ++wrong;
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0) << "seed " << kSeed;
}

// ---- Faults

/// The operand of LDTILECFG for eight full tiles.
std::array<std::uint8_t, 64> full_tiles() {
  std::array<std::uint8_t, 64> c{};
  c[0] = 1;
  for (std::size_t t = 0; t < 8; ++t) {
    c[16 + 2 * t] = 64;
    c[48 + t] = 16;
  }
  return c;
}

/// Returns the fault of configuring tiles so, or "".
std::string fault_of(const std::array<std::uint8_t, 64>& configuration) {
  amx::Machine machine;
  amx::Instruction i;
  i.operation = amx::Operation::configure;
  i.base = reinterpret_cast<std::uintptr_t>(configuration.data());
  const char* fault = machine.execute(i);
  return fault == nullptr ? "" : fault;
}

TEST(AmxFaults, OfConfigurations) {
  EXPECT_EQ(fault_of(full_tiles()), "");
  const auto expect_fault = [](std::size_t at, std::uint8_t byte, const char* part) {
    auto c = full_tiles();
    c[at] = byte;
    EXPECT_NE(fault_of(c).find(part), std::string::npos) << "byte " << at << ": \"" << fault_of(c) << "\"";
  };
  expect_fault(0, 2, "palette");
  expect_fault(1, 3, "another row");
  for (const std::size_t at : {2U, 15U}) expect_fault(at, 1, "reserved");
  expect_fault(16, 65, "64 bytes");
  expect_fault(31, 1, "64 bytes");
  expect_fault(48, 17, "16 rows");
  expect_fault(55, 0, "without rows");
  expect_fault(22, 0, "without bytes");
  for (const std::size_t at : {32U, 47U, 56U, 63U}) expect_fault(at, 1, "above 7");
}

TEST(AmxFaults, OfTiles) {
  amx::Machine machine;
  const auto fault = [&](amx::Operation operation, unsigned tile, unsigned left = 0, unsigned right = 0) {
    amx::Instruction i;
    i.operation = operation;
    i.tile = tile;
    i.left = left;
    i.right = right;
    const char* text = machine.execute(i);
    return std::string(text == nullptr ? "" : text);
  };
  using enum amx::Operation;
  for (const amx::Operation o : {zero, load, store, multiply_add})
    EXPECT_NE(fault(o, 0, 1, 2).find("not configured"), std::string::npos);
  auto c = full_tiles();
  c[16 + 2 * 3] = c[48 + 3] = 0;  // tile 3 has no size
  c[16 + 2 * 4] = 62;             // a row of tile 4 is not a number of words
  c[48 + 5] = 15;                 // tile 5 has 15 rows
  c[16 + 2 * 6] = 60;             // a row of tile 6 has 15 words
  amx::Instruction configuration;
  configuration.operation = configure;
  configuration.base = reinterpret_cast<std::uintptr_t>(c.data());
  ASSERT_EQ(machine.execute(configuration), nullptr);
  for (const amx::Operation o : {zero, load, store})
    EXPECT_NE(fault(o, 3).find("no size"), std::string::npos);
  for (const amx::Operation o : {load, store}) EXPECT_NE(fault(o, 4).find("words"), std::string::npos);
  for (const auto& [d, a, b] : {std::array{0U, 0U, 1U}, std::array{0U, 1U, 0U}, std::array{0U, 1U, 1U}})
    EXPECT_NE(fault(multiply_add, d, a, b).find("are one"), std::string::npos);
  EXPECT_NE(fault(multiply_add, 0, 3, 1).find("no size"), std::string::npos);
  EXPECT_NE(fault(multiply_add, 0, 1, 4).find("words"), std::string::npos);
  for (const auto& [d, a, b] : {std::array{0U, 5U, 1U}, std::array{0U, 1U, 5U}, std::array{5U, 1U, 2U},
                                std::array{0U, 6U, 1U}, std::array{0U, 1U, 6U}, std::array{6U, 1U, 2U}})
    EXPECT_NE(fault(multiply_add, d, a, b).find("do not match"), std::string::npos) << d << a << b;
  EXPECT_EQ(fault(multiply_add, 6, 0, 1).substr(0, 3), "the");
  EXPECT_EQ(fault(multiply_add, 0, 1, 2), "");
  EXPECT_EQ(fault(release, 0), "");
  EXPECT_NE(fault(zero, 0).find("not configured"), std::string::npos);
}

TEST(AmxFaults, OfEncodings) {
  const auto fault = [](std::array<std::uint8_t, 6> code) {
    EXPECT_TRUE(amx::is_tile_instruction(code.data()));
    const char* text = amx::decode(code.data(), {}).fault;
    return std::string(text == nullptr ? "" : text);
  };
  EXPECT_EQ(fault({0xc4, 0xe2, 0x72, 0x5c, 0xc2}), "");  // TDPBF16PS 0, 2, 1
  EXPECT_NE(fault({0xc4, 0xe2, 0xf2, 0x5c, 0xc2}).find("VEX.W"), std::string::npos);
  EXPECT_NE(fault({0xc4, 0xe2, 0x76, 0x5c, 0xc2}).find("VEX.L"), std::string::npos);
  EXPECT_NE(fault({0xc4, 0x62, 0x72, 0x5c, 0xc2}).find("above 7"), std::string::npos);         // C is tile 8
  EXPECT_NE(fault({0xc4, 0xc2, 0x72, 0x5c, 0xc2}).find("above 7"), std::string::npos);         // A
  EXPECT_NE(fault({0xc4, 0xe2, 0x32, 0x5c, 0xc2}).find("above 7"), std::string::npos);         // B
  EXPECT_NE(fault({0xc4, 0xe2, 0x73, 0x5c, 0xc2}), "");                                        // TDPFP16PS
  EXPECT_NE(fault({0xc4, 0xe2, 0x73, 0x49, 0xc0}).find("vvvv"), std::string::npos);            // TILEZERO
  EXPECT_NE(fault({0xc4, 0xe2, 0x7b, 0x4b, 0x00}).find("SIB"), std::string::npos);             // TILELOADD
  EXPECT_EQ(fault({0xc4, 0xe2, 0x79, 0x4b, 0x04, 0x08}), "");                                  // TILELOADDT1
  EXPECT_NE(fault({0xc4, 0xe2, 0x78, 0x4b, 0x04, 0x08}).find("not know"), std::string::npos);  // no prefix
  const std::uint8_t of_vfmadd[] = {0xc4, 0xe2, 0x71, 0xb8, 0xc2};
  EXPECT_FALSE(amx::is_tile_instruction(of_vfmadd));
}

TEST(AmxFaults, EndTheProgramWithAMessage) {
  if (tile_hardware() != TileHardware::emulator) GTEST_SKIP() << "nothing is emulated here";
  { const HardwareTiles::Scope released; }
  EXPECT_DEATH(HardwareTiles().zero<2>(), "AMX emulator: tiles are not configured");
  EXPECT_DEATH(__asm__ volatile("ud2"), "");
}

}  // namespace
}  // namespace mantissa::kernels::testing::amx_emulator_test

#endif
