#include "mantissa/kernels/cpu/gemm/check.h"

#include "mantissa/core/base/error_text.h"
#include "mantissa/kernels/cpu/gemm/plan.h"
#include "mantissa/kernels/interleave.h"

namespace mantissa::kernels {

Scalar arithmetic_of(const Gemm& g) {
  const bool f64 =
      g.a.operand.format == Scalar::f64 && g.b.operand.format == Scalar::f64 && g.c.type == Scalar::f64;
  return f64 ? Scalar::f64 : Scalar::f32;
}

Product product_of(const Gemm& g) {
  return {arithmetic_of(g), factor_of(g.a.matrix.type, g.a.operand), factor_of(g.b.matrix.type, g.b.operand),
          g.accumulator};
}

ProductKernel kernel_of(const Gemm& g) {
  return kernel_of(product_of(g), g.m, !g.a.transposed && g.b.transposed && g.rows.empty() && !g.accumulate,
                   g.b.quants && interleaves(*g.b.quants));
}

UnitId unit_of(const Context& ctx, const Gemm& g) {
  return unit_of(ctx.simd, product_of(g), kernel_of(g)).id;
}

namespace {

std::optional<CardSum> find_card_sum_of(const Gemm& g) {
  const Product p = product_of(g);
  if (g.a.blocks && g.b.blocks) return find_card_sum(p.accumulator, g.a.blocks->format, g.b.blocks->format);
  if (g.a.blocks || g.b.blocks) return std::nullopt;
  return find_card_sum(p.accumulator, p.a.format, p.b.format);
}

std::string factor_name(const GemmOperand& o, Scalar format) {
  return std::string(o.blocks ? traits(o.blocks->format).name : name(format));
}

}  // namespace

CardSum card_sum_of(const Gemm& g) {
  return find_card_sum_of(g).value_or(CardSum{});
}

void check(const Context& ctx, const Gemm& g) {
  const Scalar arithmetic = arithmetic_of(g);
  const bool epilogue = g.bias != nullptr || g.addend.data != nullptr ||
                        (arithmetic == Scalar::f32 && g.rounded != Scalar::f32 && g.rounded != Scalar::f64);
  if (g.accumulate && (g.c.type != arithmetic || epilogue)) {
    throw DtypeError(
        "gemm: C is {}{}, but only plain {} accumulates a product. Fix: accumulate there and cast afterwards",
        name(g.c.type), epilogue ? " with an epilogue" : "", name(arithmetic));
  }
  if (g.continue_blocks && (!g.accumulate || !g.rows.empty())) {
    throw ShapeError("gemm: continue_blocks requires accumulate and empty rows");
  }
  if (g.accumulator.order == SumOrder::tile) {
    const bool scaled = g.a.unscale != 1 || g.b.unscale != 1;
    const auto block = static_cast<std::int64_t>(kTileBlock);
    if (arithmetic == Scalar::f64 || g.accumulator.block % block != 0 || (scaled && g.continue_blocks)) {
      throw DtypeError(
          "gemm: tile order is for f32 arithmetic, roundings after multiples of {} terms, and no "
          "scales with continue_blocks; got {}, roundings after {}",
          block, name(arithmetic), g.accumulator.block);
    }
  }
  if (g.accumulator.order == SumOrder::card) {
    const Product p = product_of(g);
    const bool scaled = g.a.unscale != 1 || g.b.unscale != 1;
    if (arithmetic == Scalar::f64 || p.a.parts > 1 || (scaled && g.continue_blocks) || !find_card_sum_of(g)) {
      throw DtypeError(
          "gemm: {} multiplies {} in one part, with scales only without continue_blocks; got {} and {} in {} "
          "parts",
          name(p.accumulator.card), factors_of(p.accumulator.card), factor_name(g.a, p.a.format),
          factor_name(g.b, p.b.format), p.a.parts);
    }
  }
  if (g.a.operand.parts != g.b.operand.parts) {
    throw DtypeError("gemm: A has {} parts and B has {}; both need the same number", g.a.operand.parts,
                     g.b.operand.parts);
  }
  if ((g.a.blocks || g.b.blocks) && (arithmetic == Scalar::f64 || g.a.operand.parts > 1)) {
    throw DtypeError("gemm: packed blocks are multiplied in f32 in one part, got {} in {}", name(arithmetic),
                     g.a.operand.parts);
  }
  for (const GemmOperand* o : {&g.a, &g.b}) {
    if (!o->quants) continue;
    if (arithmetic == Scalar::f64) {
      throw DtypeError("gemm: quantized blocks are multiplied in f32, got f64 arithmetic");
    }
    if (!takes_width(*o->quants, static_cast<std::size_t>(o->matrix.ld))) {
      throw ShapeError("gemm: rows in {} have a multiple of {} elements, got {}", traits(*o->quants).name,
                       traits(*o->quants).per_scale, o->matrix.ld);
    }
  }
  const std::size_t need = gemm_workspace(ctx, g.m, g.n, g.k, arithmetic, g.a.operand.parts);
  if (ctx.workspace_bytes < need) {
    throw ResourceError(
        "gemm [{} × {} × {}] in {} needs {} bytes of workspace, got {}. Fix: reserve gemm_workspace()", g.m,
        g.n, g.k, name(arithmetic), need, ctx.workspace_bytes);
  }
}

std::size_t gemm_workspace(const Context& ctx, std::int64_t m, std::int64_t n, std::int64_t k,
                           Scalar arithmetic, int parts) {
  if (m <= 0 || n <= 0 || k <= 0) return 0;
  const std::size_t element = bytes_of(arithmetic == Scalar::f64 ? Scalar::f64 : Scalar::f32);
  const gemm_plan::GemmScratch scratch(static_cast<std::size_t>(m), static_cast<std::size_t>(n),
                                       static_cast<std::size_t>(k), element, static_cast<std::size_t>(parts));
  return scratch.elements(ctx.threads) * element;
}

}  // namespace mantissa::kernels
