#include "mantissa/engine/plan/sum_order.h"

#include <algorithm>
#include <string>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/numeric/card_sum.h"
#include "mantissa/core/numeric/product.h"
#include "mantissa/core/tensor/extent.h"
#include "mantissa/engine/plan/explain.h"
#include "mantissa/precision/policy/accumulate.h"

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

/// Returns the pairs of factors that `step` multiplies.
std::vector<std::pair<Factor, Factor>> products_of(const Program& program, const Step& step) {
  if (step.op->kind == graph::OpKind::attention) return {{step.compute, step.compute}};
  std::vector<Factor> factors;
  for (const Operand& o : factors_of(step)) {
    const Buffer& b = program.buffer(o.buffer);
    // Quantized blocks are dequantized to the format in which they are multiplied.
    factors.push_back(factor_of(b.quants ? o.operand.format : b.layout().type, o.operand));
  }
  if (factors.size() < 2) return {};
  std::vector<std::pair<Factor, Factor>> all = {{factors[0], factors[1]}};
  if (!step.op->made_factors.empty())
    all.insert(all.end(), {{step.compute, factors[0]}, {step.compute, factors[1]}});
  return all;
}

/// Returns the setting under which the card multiplies: another accumulator for factors in formats `of`, or
/// else other factors.
std::string cure(const Accumulator& accumulator, const std::optional<std::pair<Scalar, Scalar>>& of) {
  const Accumulator usual(accumulator.card, Scalar::f32, 0);
  for (const Accumulator& other : {Accumulator(accumulator.card, accumulator.format, 0), usual}) {
    if (of && find_card_sum(other, of->first, of->second))
      return "accumulate=" + precision::accumulator_text(other);
  }
  for (const Scalar factor : {Scalar::bf16, Scalar::f16, Scalar::tf32}) {
    if (find_card_sum(accumulator, factor, factor)) return fmt::format("compute={}", name(factor));
  }
  return "accumulate=" + precision::accumulator_text(usual);
}

/// Throws ConfigError if blocks are stored as values (Buffer::layout()), from which no card's sum follows.
void check_packed(const Program& program, const precision::Use& use, const Step& step,
                  const std::vector<Operand>& factors) {
  for (const Operand& o : factors) {
    const Buffer& b = program.buffer(o.buffer);
    if (b.layout().blocks) continue;
    const bool f32 = in_f32(b.scaled->scaling, *b.scaled->blocks);
    throw ConfigError(
        "{} {}: accumulate={} ({}): {} are stored as values, not as elements and scales. Fix: the rule "
        "\"*: op={} accumulate=f32\"{}",
        step.scope, step.op->op, precision::accumulator_text(step.accumulator),
        origin_of(program, use, "accumulate"), f32 ? "blocks with f32 scales" : "blocks along the tokens",
        f32 ? "matmul" : "matmul.dw", f32 ? ", or another scale_rounding" : "");
  }
}

/// Throws ConfigError if the card does not multiply the step's factors.
void check_card(const Program& program, const precision::Use& use, const Step& step) {
  const Accumulator& accumulator = step.accumulator;
  const auto refuse = [&](const std::string& factors, std::optional<std::pair<Scalar, Scalar>> of = {}) {
    const std::string text = precision::accumulator_text(accumulator);
    throw ConfigError(
        "{} {}: accumulate={} ({}): {} multiplies {}{}{}, and the factors here are {}. Fix: {}, or the "
        "rule \"{}: accumulate=f32\"",
        step.scope, step.op->op, text, origin_of(program, use, "accumulate"), name(accumulator.card),
        factors_of(accumulator.card),
        accumulator.format == Scalar::f16 ? " (in part with f16 accumulators)" : "",
        accumulator.block > 0 ? fmt::format(" (in part with k={})", accumulator.block) : "", factors,
        cure(accumulator, of), step.scope);
  };
  const std::vector<Operand> factors = factors_of(step);
  const auto blocks_of = [&](const Operand& o) {
    const std::optional<ScaledStorage>& scaled = program.buffer(o.buffer).scaled;
    return scaled ? scaled->blocks : std::nullopt;
  };
  const auto blocks =
      std::ranges::find_if(factors, [&](const Operand& o) { return blocks_of(o).has_value(); });
  if (blocks != factors.end()) {
    const std::optional<BlockFormat> a = blocks_of(factors.front()), b = blocks_of(factors.back());
    if (a && b && find_card_sum(accumulator, *a, *b)) return check_packed(program, use, step, factors);
    refuse(fmt::format("blocks of {}", traits(*blocks_of(*blocks)).name));
  }
  for (const auto& [a, b] : products_of(program, step)) {
    if (a.parts > 1) refuse(fmt::format("{} in {} parts", name(a.format), a.parts));
    if (find_card_sum(accumulator, a.format, b.format)) continue;
    refuse(a.format == b.format ? std::string(name(a.format))
                                : fmt::format("{} and {}", name(a.format), name(b.format)),
           std::pair(a.format, b.format));
  }
}

}  // namespace

std::string_view name(SumOrder order) {
  if (order == SumOrder::card) return "card";
  return order == SumOrder::tile ? "tile" : "chain";
}

bool sums_products(const Step& step) {
  return step.op->kind == graph::OpKind::product || step.op->kind == graph::OpKind::head ||
         step.op->kind == graph::OpKind::attention;
}

void set_sum_order(const Program& program, const precision::Use& use, AccumulateOrder wanted, Step& step) {
  if (!sums_products(step)) {
    if (step.accumulator.card != Card::none) step.accumulator = {};
    return;
  }
  if (step.accumulator.card != Card::none) return check_card(program, use, step);
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
