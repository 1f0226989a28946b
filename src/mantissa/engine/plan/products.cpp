#include "mantissa/engine/plan/products.h"

#include <algorithm>

#include "mantissa/engine/plan/explain.h"
#include "mantissa/engine/plan/sum_order.h"
#include "mantissa/kernels/interleave.h"

namespace mantissa::plan {
namespace {

bool runs_across(const Step& step, std::size_t input) {
  return step.op->sums_across_rows != nullptr && step.op->sums_across_rows(step.attributes, input);
}

kernels::ProductKernel kernel_of(const Program& program, const Step& step, const StoredProduct& stored) {
  const std::int64_t rows = program.buffer(step.inputs.front().buffer).shape.leading();
  if (step.op->kind == graph::OpKind::attention) return kernels::attention_kernel(stored.product, rows);
  const bool in_place = !step.op->sums_tokens && !stored.a_across && !stored.b_across;
  const auto& quants = program.buffer(step.inputs[1].buffer).quants;
  return kernels::kernel_of(stored.product, rows, in_place, quants && kernels::interleaves(quants->format));
}

}  // namespace

std::optional<StepProduct> product_of(const Program& program, const Step& step) {
  if (!sums_products(step)) return std::nullopt;
  StepProduct p;
  Product& product = p.stored.product;
  p.stored.a = program.buffer(step.inputs[0].buffer).layout();
  p.stored.b = program.buffer(step.inputs[1].buffer).layout();
  p.stored.a_across = runs_across(step, 0);
  p.stored.b_across = runs_across(step, 1);
  product.arithmetic = program.arithmetic;
  product.a = factor_of(p.stored.a.type, step.inputs[0].operand);
  product.b = factor_of(p.stored.b.type, step.inputs[1].operand);
  product.accumulator = {program.arithmetic, 0, step.accumulator.order};
  if (rounds_sums(step) || has_card(step)) product.accumulator = step.accumulator;
  if (step.op->kind == graph::OpKind::attention) {
    product.a = product.b = step.compute;
  } else if (!step.op->made_factors.empty() && usual_order(step.compute, step.compute) == SumOrder::chain) {
    product.a = step.compute;  // the factor that special units do not take
  }
  p.kernel = kernel_of(program, step, p.stored);
  return p;
}

std::vector<StoredProduct> packed_products(const Program& program) {
  std::vector<StoredProduct> all;
  const auto add = [&](const Program& p) {
    for (const Step& s : p.steps) {
      const std::optional<StepProduct> product = product_of(p, s);
      if (product && product->kernel == kernels::ProductKernel::packed &&
          std::ranges::find(all, product->stored) == all.end())
        all.push_back(product->stored);
    }
  };
  add(program);
  if (program.update) add(*program.update);
  return all;
}

}  // namespace mantissa::plan
