// The cost of products, conversions and updates on this machine, in every format of policies.
#pragma once

#include <string_view>
#include <vector>

#include "mantissa/engine/plan/products.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/kernels/processor.h"

namespace mantissa::forecast {

/// One format: its support, and the best of several measurements of each kind.
struct FormatCost {
  kernels::FormatSupport support;
  plan::StoredProduct factors;  // a product of such factors, as plans compute it
  double product = 0;           // flop/s of a square product, counting only the multiply-adds of the result
  // elements/s from f32 to the stored format; 0 for parts, which are computed during the product
  double conversion = 0;
};

/// Elements/s of AdamW's sweep over weights and moments.
struct UpdateCost {
  double f32 = 0, bf16_stochastic = 0;
};

struct Costs {
  std::vector<FormatCost> formats;
  UpdateCost update;

  /// Returns the cost of the format `name`, which must exist.
  const FormatCost& of(std::string_view name) const;
};

/// Measures the costs. Takes about a second, in rounds over all formats, so that other load affects all
/// formats alike.
Costs measure_costs(const runtime::Device& device);

}  // namespace mantissa::forecast
