// The descriptors of the products of a tiny Llama, of 16 tokens.
#include "mantissa/engine/plan/products.h"

#include <gtest/gtest.h>

#include "engine/plan/planned.h"
#include "mantissa/engine/plan/sum_order.h"

namespace mantissa::plan::products_test {
namespace {

using kernels::ProductKernel;

Program plan_under(const std::string& policy, const CompileOptions& options = {16, 16}) {
  return plan_for(precision::Policy::parse(policy), options);
}

TEST(Products, EveryStepThatSumsProductsHasADescriptor) {
  for (const char* policy : {"32-true", "64-true", "bf16-mixed", "bf16-matmul", "compute=tf32", "fp8-hybrid",
                             "bf16-mixed compute=mxfp8", "bf16-matmul-x6"}) {
    const Program p = plan_under(policy);
    for (const Step& s : p.steps) {
      const std::optional<StepProduct> product = product_of(p, s);
      ASSERT_EQ(product.has_value(), sums_products(s)) << s.op->id;
      if (!product) continue;
      EXPECT_EQ(product->stored.product.arithmetic, p.arithmetic);
      EXPECT_EQ(product->stored.product.accumulator.order, s.accumulator.order);
      EXPECT_EQ(product->stored.product.a.parts, product->stored.product.b.parts)
          << policy << " " << s.op->id;
      EXPECT_EQ(multiplies_bf16(product->stored.product), s.accumulator.order == SumOrder::tile)
          << policy << " " << s.op->id;
    }
  }
}

TEST(Products, StateTheKernelAtCapacityAndTheDirectionOfSums) {
  const Program p = plan_under("bf16-mixed");
  for (const Step& s : p.steps) {
    const std::optional<StepProduct> product = product_of(p, s);
    if (!product) continue;
    const std::string id(s.op->id);
    EXPECT_EQ(product->kernel, s.op->kind == graph::OpKind::attention   ? ProductKernel::in_place
                               : id == "matmul.dx" || id == "matmul.dw" ? ProductKernel::packed
                                                                        : ProductKernel::strips)
        << id;
    EXPECT_EQ(product->stored.a_across, id == "matmul.dw") << id;
    EXPECT_EQ(product->stored.b_across, id == "matmul.dw" || id == "matmul.dx") << id;
  }
}

TEST(Products, FactorsAreTheNarrowerOfStorageAndRounding) {
  const Program p = plan_under("bf16-matmul");  // stored in f32, rounded to bf16 while loading
  const std::optional<StepProduct> up = product_of(p, *find_step(p, "model.layers.0.mlp.up_proj", "matmul"));
  EXPECT_EQ(up->stored.a.type, Scalar::f32);
  EXPECT_EQ(up->stored.product.a.format, Scalar::bf16);
  const Program blocks = plan_under("bf16-mixed compute=mxfp8");
  const std::optional<StepProduct> packed =
      product_of(blocks, *find_step(blocks, "model.layers.0.mlp.up_proj", "matmul"));
  ASSERT_TRUE(packed->stored.b.blocks);
  EXPECT_EQ(packed->stored.b.blocks->format, BlockFormat::mxfp8);
  EXPECT_EQ(packed->stored.product.b.format, Scalar::bf16);
}

TEST(Products, PackedOnesAreListedOnce) {
  const std::vector<StoredProduct> products = packed_products(plan_under("bf16-mixed"));
  // dx and dw, of gradients that are stored in bf16 and in f32; with 16 tokens the others have few rows.
  ASSERT_EQ(products.size(), 4U);
  for (std::size_t i = 0; i < products.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(products[i], products[j]) << i << " " << j;
  }
}

}  // namespace
}  // namespace mantissa::plan::products_test
