// The products of a program's steps: what determines their bits, how their factors lie in memory, and the
// kernel that computes them.
#pragma once

#include <optional>
#include <vector>

#include "mantissa/core/numeric/product.h"
#include "mantissa/core/tensor/layout.h"
#include "mantissa/engine/plan/program.h"
#include "mantissa/kernels/units.h"

namespace mantissa::plan {

/// A product and the layouts of its factors in memory. The sum runs along the rows of a factor or across
/// them.
struct StoredProduct {
  Product product;
  Layout a, b;
  bool a_across = false, b_across = false;
  friend bool operator==(const StoredProduct&, const StoredProduct&) = default;
};

struct StepProduct {
  StoredProduct stored;
  kernels::ProductKernel kernel = kernels::ProductKernel::packed;  // at the plan's capacity
  friend bool operator==(const StepProduct&, const StepProduct&) = default;
};

/// Returns the product of a step, or null if it has none. The products of one step of the head or of
/// attention are summed in one order; they are described together.
std::optional<StepProduct> product_of(const Program& program, const Step& step);

/// Returns every product that gemm() computes with panels, each once, with those of the update.
std::vector<StoredProduct> packed_products(const Program& program);

}  // namespace mantissa::plan
