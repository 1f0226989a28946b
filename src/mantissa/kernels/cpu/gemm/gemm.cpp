// The matrix product: chooses the kernel that computes it.
#include "mantissa/kernels/gemm.h"

#include <algorithm>
#include <span>

#include "mantissa/kernels/cpu/gemm/check.h"
#include "mantissa/kernels/interleave.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/gemm/gemm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "mantissa/kernels/cpu/gemm/run-inl.h"
#include "mantissa/kernels/cpu/gemm/tiles_run-inl.h"
#include "mantissa/kernels/cpu/gemm/units-inl.h"
#include "mantissa/kernels/cpu/gemm_thin/run-inl.h"
#include "mantissa/kernels/cpu/gemm_thin/tiles_run-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {

void GemmF32(const Context& ctx, const Gemm& g) {
  const UnitId unit = unit_of(ctx, g);
  const bool pairs = unit == UnitId::vdpbf16ps;
  const bool by_tiles = unit == UnitId::tdpbf16ps || unit == UnitId::tile_model;
  const bool packed = kernel_of(g) == ProductKernel::packed;
  if (by_tiles && !packed) {
    const ThinTileRun run(ctx, g);
    if (run.Fits()) return run.Run();
  }
  if (!packed && (!pairs || g.m <= kThinPairRows)) return ThinRun<float>(ctx, g, pairs).Run();
  if (by_tiles) {
    TileRun run(ctx, g);
    if (run.Fits()) return run.Run();
  }
  if (by_tiles) {
    GemmRun<TileUnit> run(ctx, g);
    if (run.Fits()) return run.Run();
  }
#if HWY_TARGET == HWY_AVX3
  if (pairs) {
    GemmRun<PairUnit> run(ctx, g);
    if (run.Fits()) return run.Run();
  }
#endif
  GemmRun<FmaUnit<float>>(ctx, g).Run();
}
/// Runs the products in one loop if their kernels can. Returns false if it has computed nothing.
bool TogetherF32(const Context& ctx, std::span<const Gemm> products) {
  const UnitId unit = unit_of(ctx, products[0]);
  const bool pairs = unit == UnitId::vdpbf16ps;
  const bool thin = std::ranges::all_of(products, [&](const Gemm& g) {
    return unit_of(ctx, g) == unit && kernel_of(g) != ProductKernel::packed;
  });
  if (!thin || unit == UnitId::tdpbf16ps || unit == UnitId::tile_model) return false;
  if (pairs && products[0].m > kThinPairRows) return false;
  return ThinRun<float>::RunTogether(ctx, products, pairs);
}

void GemmF64(const Context& ctx, const Gemm& g) {
  if (kernel_of(g) != ProductKernel::packed) return ThinRun<double>(ctx, g, false).Run();
  GemmRun<FmaUnit<double>>(ctx, g).Run();
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {
namespace {

HWY_EXPORT(GemmF32);
HWY_EXPORT(TogetherF32);
HWY_EXPORT(GemmF64);

}  // namespace

void gemm(const Context& ctx, const Gemm& g) {
  if (g.m <= 0 || g.n <= 0) return;
  check(ctx, g);
  if (arithmetic_of(g) == Scalar::f64) {
    HWY_DISPATCH_TABLE(GemmF64)[ctx.target()](ctx, g);
  } else {
    HWY_DISPATCH_TABLE(GemmF32)[ctx.target()](ctx, g);
  }
}

void gemm_together(const Context& ctx, std::span<const Gemm> products) {
  const Gemm& first = products[0];
  const auto alike = [&](const Gemm& g) {
    return arithmetic_of(g) == Scalar::f32 && g.m == first.m && g.k > 0 && g.n > 0 &&
           g.n % kInterleaved == 0 && g.a.operand == first.a.operand && g.accumulator == first.accumulator &&
           g.rows.empty();
  };
  if (products.size() > 1 && first.m > 0 && std::ranges::all_of(products, alike)) {
    for (const Gemm& g : products) check(ctx, g);
    if (HWY_DISPATCH_TABLE(TogetherF32)[ctx.target()](ctx, products)) return;
  }
  for (const Gemm& g : products) gemm(ctx, g);
}

}  // namespace mantissa::kernels
#endif  // HWY_ONCE
