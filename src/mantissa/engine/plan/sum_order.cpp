#include "mantissa/engine/plan/sum_order.h"

#include <algorithm>
#include <string>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/numeric/product.h"
#include "mantissa/core/tensor/extent.h"
#include "mantissa/engine/plan/explain.h"

namespace mantissa::plan {
namespace {

using precision::AccumulateOrder;

/// Returns the inputs of `step` that are factors of its products.
std::vector<Operand> factors_of(const Step& step) {
  std::vector<Operand> factors;
  for (std::size_t i = 0; i < step.inputs.size(); ++i) {
    const graph::Read read = step.op->reads[std::min(i, step.op->reads.size() - 1)];
    if (read == graph::Read::matmul) factors.push_back(step.inputs[i]);
  }
  return factors;
}

bool is_exact(const Factor& f) {
  return usual_order(f, f) == SumOrder::tile;
}

/// Returns true if the format of factors that the step computes itself counts. It counts in all steps that
/// compute logits, so that forward and backward pass, traces and generation sum them in one order.
bool counts_compute(const Step& step) {
  const bool logits = step.op->kind == graph::OpKind::head || step.attributes.flag("logits");
  return !step.op->made_factors.empty() || logits;
}

SumOrder order_by_factors(const Program& program, const Step& step) {
  if (program.arithmetic == Scalar::f64) return SumOrder::chain;
  bool exact = !counts_compute(step) || is_exact(step.compute), scaled = false;
  for (const Operand& o : factors_of(step)) {
    const auto& storage = program.buffer(o.buffer).scaled;
    exact = exact && is_exact(o.operand);
    scaled = scaled || (storage && storage->scale >= 0);
  }
  return exact && !(scaled && rounds_sums(step)) ? SumOrder::tile : SumOrder::chain;
}

std::string origin_of(const Program& program, const precision::Use& use, std::string_view field) {
  return program.policy.decided_by(use, {&field, 1});
}

void check_tile(const Program& program, const precision::Use& use, const Step& step) {
  if (program.arithmetic != Scalar::f64) return;
  throw ConfigError(
      "{} {}: accumulate_order=tile ({}) is not available for f64, whose products are summed in "
      "chain order. Fix: accumulate_order=auto, or the rule \"{}: accumulate_order=auto\"",
      step.scope, step.op->op, origin_of(program, use, "accumulate_order"), step.scope);
}

void check_block(const Program& program, const precision::Use& use, const Step& step) {
  constexpr auto kBlock = static_cast<std::int64_t>(kTileBlock);
  const std::int64_t block = step.accumulator.block;
  if (block % kBlock == 0) return;
  throw ConfigError(
      "{} {}: accumulate_block={} ({}): expected a multiple of {}, the block of sums in tile order. Fix: "
      "accumulate_block={}, or accumulate_order=chain",
      step.scope, step.op->op, block, origin_of(program, use, "accumulate_block"), kBlock,
      (block / kBlock + 1) * kBlock);
}

}  // namespace

std::string_view name(SumOrder order) {
  return order == SumOrder::tile ? "tile" : "chain";
}

bool sums_products(const Step& step) {
  return step.op->kind == graph::OpKind::product || step.op->kind == graph::OpKind::head ||
         step.op->kind == graph::OpKind::attention;
}

void set_sum_order(const Program& program, const precision::Use& use, AccumulateOrder wanted, Step& step) {
  if (!sums_products(step)) return;
  if (wanted == AccumulateOrder::by_factors) {
    step.accumulator.order = order_by_factors(program, step);
  } else {
    step.accumulator.order = wanted == AccumulateOrder::tile ? SumOrder::tile : SumOrder::chain;
  }
  if (step.accumulator.order != SumOrder::tile) return;
  check_tile(program, use, step);
  if (!rounds_sums(step)) {
    step.accumulator.block = 0;
  } else {
    check_block(program, use, step);
  }
}

}  // namespace mantissa::plan
