#include "mantissa/kernels/units.h"

#include <algorithm>
#include <array>
#include <ranges>

namespace mantissa::kernels {
namespace {

// Only FMA takes thin products of stored numbers. They last as long as reading B, which all units read once,
// so that another one saves nothing. It could lose: tiles need A in panels of 32 rows, and packing those
// takes as long for one row as for 32. Blocks are decoded for VDPBF16PS in half of the instructions that FMA
// needs.

constexpr std::string_view kBf16Factors = "bf16 values, in tile order";

constexpr std::array kUnits = {
    Unit{.id = UnitId::fma,
         .name = "FMA",
         .extension = "",
         .sets = {Simd::avx2, Simd::avx512, Simd::avx512_bf16, Simd::amx, Simd::amx_model, Simd::neon},
         .kernels = {ProductKernel::packed, ProductKernel::strips, ProductKernel::thin,
                     ProductKernel::thin_blocks, ProductKernel::attention, ProductKernel::in_place},
         .takes = [](const Product&) { return true; },
         .factors = "any, widened to f32 or f64",
         .native = Scalar::f32,
         .packing = "f32 or f64",
         .accumulator = "f32 or f64",
         .why = "one rounding per multiply-add, on every machine"},
    Unit{.id = UnitId::vdpbf16ps,
         .name = "VDPBF16PS",
         .extension = "avx512_bf16",
         .sets = {Simd::avx512_bf16},
         .kernels = {ProductKernel::packed, ProductKernel::strips, ProductKernel::thin_blocks,
                     ProductKernel::attention},
         .takes = multiplies_bf16,
         .factors = kBf16Factors,
         .native = Scalar::bf16,
         .packing = "pairs of bf16, the terms k and k + 2",
         .accumulator = "f32",
         .why = "two multiply-adds per lane, with the bits of FMA"},
    Unit{.id = UnitId::tdpbf16ps,
         .name = "TDPBF16PS",
         .extension = "amx_bf16",
         .sets = {Simd::amx},
         .kernels = {ProductKernel::packed, ProductKernel::strips, ProductKernel::attention},
         .takes = multiplies_bf16,
         .factors = kBf16Factors,
         .native = Scalar::bf16,
         .packing = "tiles of 16 × 32 terms, in pairs of bf16",
         .accumulator = "f32",
         .why = "a tile of 16 × 16 sums of 32 terms, with the bits of FMA"},
    Unit{.id = UnitId::tile_model,
         .name = "TDPBF16PS model",
         .extension = "",
         .sets = {Simd::amx_model},
         .kernels = {ProductKernel::packed, ProductKernel::strips, ProductKernel::attention},
         .takes = multiplies_bf16,
         .factors = kBf16Factors,
         .native = Scalar::bf16,
         .packing = "tiles of 16 × 32 terms, in pairs of bf16",
         .accumulator = "f32",
         .why = "a slow aid for tests"},
};

}  // namespace

std::span<const Unit> units() {
  return kUnits;
}

const Unit& unit(UnitId id) {
  return *std::ranges::find(kUnits, id, &Unit::id);
}

const Unit& unit_of(Simd simd, const Product& product, ProductKernel kernel) {
  for (const Unit& u : kUnits | std::views::reverse) {
    if (u.sets.has(simd) && u.kernels.has(kernel) && u.takes(product)) return u;
  }
  return unit(UnitId::fma);
}

bool is_present(const Unit& unit) {
  return std::ranges::any_of(kSimds, [&](Simd s) { return unit.sets.has(s) && is_supported(s); });
}

std::string_view why(const Unit& unit, Simd simd) {
  if (!is_present(unit)) return "the processor or this build lacks it";
  if (unit.sets.has(simd)) return unit.why;
  if (unit.id == UnitId::tile_model) return unit.why;
  if (unit.sets.has(best_simd())) return "--simd selects another set";
  return best_simd() == Simd::amx ? "TDPBF16PS is faster" : "not faster here than FMA";
}

}  // namespace mantissa::kernels
