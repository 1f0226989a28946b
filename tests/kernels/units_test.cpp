// The choice of the unit of a product.
#include "mantissa/kernels/units.h"

#include <gtest/gtest.h>

#include <iostream>
#include <set>
#include <string>
#include <utility>

#include "kernels/amx_emulator.h"
#include "mantissa/kernels/cpu/gemm/check.h"

namespace mantissa::kernels::units_test {
namespace {

using enum Scalar;

constexpr Product of(Factor factor, SumOrder order) {
  return {f32, factor, factor, {f32, 0, order}};
}

TEST(Units, HaveUniqueNamesAndAReason) {
  std::set<std::string_view> names;
  for (const Unit& u : units()) {
    EXPECT_TRUE(names.insert(u.name).second) << u.name;
    EXPECT_EQ(unit(u.id).name, u.name);
    for (const std::string_view text : {u.factors, u.packing, u.accumulator, u.why})
      EXPECT_FALSE(text.empty()) << u.name;
    for (const Simd simd : kSimds) EXPECT_FALSE(why(u, simd).empty()) << u.name;
  }
}

/// Prints the units that the tests of this machine run, those that they emulate, and the others. ./dev test
/// shows the line.
TEST(Units, ThatRunHereAreListed) {
  using testing::TileHardware;
  const bool emulates_tiles = testing::tile_hardware() == TileHardware::emulator;
  std::string here, emulated, others;
  for (const Unit& u : units()) {
    std::string sets;
    for (const Simd simd : kSimds) {
      if (u.sets.has(simd) && is_present(u) == is_supported(simd))
        sets += (sets.empty() ? "" : ", ") + std::string(name(simd));
    }
    std::string& list = is_present(u)                                 ? here
                        : u.id == UnitId::tdpbf16ps && emulates_tiles ? emulated
                                                                      : others;
    list += (list.empty() ? "" : ", ") + std::string(u.name) + " (" + sets + ")";
    EXPECT_FALSE(sets.empty()) << u.name;
  }
  EXPECT_FALSE(here.empty());
  std::cout << "units: " << here
            << (emulated.empty() ? "" : "; emulated, not run by the processor: " + emulated)
            << (others.empty() ? "" : "; not on this machine: " + others) << "\n";
}

TEST(Units, EverySetComputesEveryProduct) {
  for (const Simd simd : kSimds) {
    for (const Scalar factor : {f64, f32, tf32, bf16, f16, e5m2, e4m3}) {
      for (const SumOrder order : {SumOrder::chain, SumOrder::tile}) {
        for (const ProductKernel kernel : {ProductKernel::packed, ProductKernel::strips, ProductKernel::thin,
                                           ProductKernel::attention, ProductKernel::in_place}) {
          const Unit& u = unit_of(simd, of(factor, order), kernel);
          EXPECT_TRUE(u.sets.has(simd)) << name(simd);
          EXPECT_TRUE(u.kernels.has(kernel)) << u.name;
        }
      }
    }
  }
}

TEST(Units, PairsMultiplyBf16ValuesInTileOrder) {
  const auto chosen = [](const Product& p, Simd simd = Simd::avx512_bf16,
                         ProductKernel kernel = ProductKernel::packed) {
    return unit_of(simd, p, kernel).id;
  };
  for (const Scalar factor : {bf16, e5m2, e4m3})
    EXPECT_EQ(chosen(of(factor, SumOrder::tile)), UnitId::vdpbf16ps) << name(factor);
  for (const Scalar factor : {f32, tf32, f16})
    EXPECT_EQ(chosen(of(factor, SumOrder::tile)), UnitId::fma) << name(factor);
  EXPECT_EQ(chosen(of(bf16, SumOrder::chain)), UnitId::fma);
  EXPECT_EQ(chosen({f32, bf16, f32, {f32, 0, SumOrder::tile}}), UnitId::fma);
  EXPECT_EQ(chosen(of(bf16, SumOrder::tile), Simd::avx512), UnitId::fma);
  EXPECT_EQ(chosen(of(bf16, SumOrder::tile), Simd::avx512_bf16, ProductKernel::thin), UnitId::fma);
  EXPECT_EQ(chosen(of(bf16, SumOrder::tile), Simd::avx512_bf16, ProductKernel::in_place), UnitId::fma);
  for (const ProductKernel kernel : {ProductKernel::strips, ProductKernel::attention})
    EXPECT_EQ(chosen(of(bf16, SumOrder::tile), Simd::avx512_bf16, kernel), UnitId::vdpbf16ps);
}

TEST(Units, TilesMultiplyBf16ValuesAndTheirPartsInTileOrder) {
  for (const auto& [simd, id] :
       {std::pair{Simd::amx, UnitId::tdpbf16ps}, std::pair{Simd::amx_model, UnitId::tile_model}}) {
    for (const int parts : {1, 2, 3}) {
      const Factor factor(bf16, parts);
      EXPECT_EQ(unit_of(simd, of(factor, SumOrder::tile)).id, id) << parts;
      EXPECT_EQ(unit_of(simd, of(factor, SumOrder::chain)).id, UnitId::fma) << parts;
    }
    EXPECT_EQ(unit_of(simd, of(f16, SumOrder::tile)).id, UnitId::fma);
    for (const ProductKernel kernel : {ProductKernel::strips, ProductKernel::attention})
      EXPECT_EQ(unit_of(simd, of(bf16, SumOrder::tile), kernel).id, id);
    for (const ProductKernel kernel : {ProductKernel::thin, ProductKernel::in_place})
      EXPECT_EQ(unit_of(simd, of(bf16, SumOrder::tile), kernel).id, UnitId::fma);
  }
}

TEST(Units, GemmTakesTheUnitOfItsOperands) {
  Context ctx;
  ctx.simd = Simd::avx512_bf16;
  Gemm g;
  g.m = g.n = g.k = 128;
  g.a = {{nullptr, bf16, 128}, bf16, false};
  g.b = {{nullptr, e4m3, 128}, bf16, true};
  g.c = {nullptr, f32, 128};
  g.accumulator.order = SumOrder::tile;
  EXPECT_EQ(unit_of(ctx, g), UnitId::vdpbf16ps);
  g.a.matrix.type = f32;  // rounded while loading
  EXPECT_EQ(unit_of(ctx, g), UnitId::vdpbf16ps);
  g.a.operand = f32;
  EXPECT_EQ(unit_of(ctx, g), UnitId::fma);
  g.a.operand = bf16;
  g.m = kThinRows;
  EXPECT_EQ(kernel_of(g), ProductKernel::strips);
  EXPECT_EQ(unit_of(ctx, g), UnitId::vdpbf16ps);
  g.m = kStripRows - 1;
  EXPECT_EQ(kernel_of(g), ProductKernel::thin);
  EXPECT_EQ(unit_of(ctx, g), UnitId::fma);
  g.b.quants = QuantFormat::q8_0;
  EXPECT_EQ(kernel_of(g), ProductKernel::thin_blocks);
  EXPECT_EQ(unit_of(ctx, g), UnitId::vdpbf16ps);
  g.b.quants = QuantFormat::nf4;  // its scales are not f16 numbers
  EXPECT_EQ(unit_of(ctx, g), UnitId::fma);
  g.b.quants.reset();
  g.accumulate = true;
  EXPECT_EQ(kernel_of(g), ProductKernel::packed);
  g.accumulator.order = SumOrder::chain;
  EXPECT_EQ(unit_of(ctx, g), UnitId::fma);
}

}  // namespace
}  // namespace mantissa::kernels::units_test
