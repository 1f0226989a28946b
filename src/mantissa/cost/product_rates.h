// The measured speed of products on this machine, by what determines their bits and by the layouts of their
// factors.
#pragma once

#include <cstdint>
#include <vector>

#include "mantissa/kernels/units.h"
#include "mantissa/plan/products.h"
#include "mantissa/runtime/device.h"

namespace mantissa::cost {

/// The speed of one kind of product.
struct ProductRate {
  plan::StoredProduct product;
  double flops_per_second = 0;  // counting the multiply-adds of the result once, also for factors in parts
};

/// The peak rate of one unit.
struct UnitRate {
  kernels::UnitId unit = kernels::UnitId::fma;
  double flops_per_second = 0;  // of multiply-adds in registers, on all threads
};

/// A square product [side × side × side] with memory for its operands, to be timed. Refers to the device.
class ProductTimer {
 public:
  ProductTimer(const runtime::Device& device, const plan::StoredProduct& product, std::int64_t side);
  /// Multiplies for a few milliseconds, at least once. Returns flop/s.
  double measure() const;

 private:
  struct Operand {
    Layout layout;
    Storage memory;
  };
  Operand operand(const Layout& layout) const;

  const runtime::Device& device_;
  plan::StoredProduct product_;
  std::int64_t side_;
  Operand a_, b_;
  Storage c_, work_;
};

/// Returns the unit that computes a product on the device.
const kernels::Unit& unit_on(const runtime::Device& device, const plan::StepProduct& product);

}  // namespace mantissa::cost
