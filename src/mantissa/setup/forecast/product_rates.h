// The measured speed of products on this machine, by what determines their bits and by the layouts of their
// factors.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mantissa/engine/plan/products.h"
#include "mantissa/engine/runtime/device.h"
#include "mantissa/kernels/units.h"

namespace mantissa::forecast {

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

/// Memory for the operands and results of products that are timed in turn. Factors in the same layout are the
/// same memory, so that many kinds of products need little more than one.
class ProductMemory {
 public:
  /// Returns the bytes that products with this side take.
  static std::size_t bytes_for(const runtime::Device& device, std::span<const plan::StoredProduct> products,
                               std::int64_t side);

  /// Returns a matrix [side × side] of random values; `second` are those of second factors.
  const std::byte* factor(const runtime::Device& device, const Layout& layout, std::int64_t side,
                          bool second);
  /// Return at least `bytes`, which the next call may replace.
  std::byte* result(std::size_t bytes) { return at_least(result_, bytes); }
  std::byte* work(std::size_t bytes) { return at_least(work_, bytes); }

 private:
  struct Factor {
    Layout layout;
    std::int64_t side = 0;
    bool second = false;
    Storage memory;
  };
  static std::byte* at_least(Storage& storage, std::size_t bytes);

  std::vector<Factor> factors_;
  Storage result_, work_;
};

/// A square product [side × side × side], to be timed. Refers to the device and the memory.
class ProductTimer {
 public:
  ProductTimer(const runtime::Device& device, const plan::StoredProduct& product, std::int64_t side,
               ProductMemory& memory);
  /// Multiplies for `least` seconds, at least once. Returns flop/s. The default is long enough for the clock
  /// at which the processor multiplies for long.
  double measure(double least = 3e-3) const;

 private:
  const runtime::Device& device_;
  plan::StoredProduct product_;
  std::int64_t side_;
  const std::byte *a_, *b_;
  ProductMemory& memory_;
};

/// Returns the unit that computes a product on the device.
const kernels::Unit& unit_on(const runtime::Device& device, const plan::StepProduct& product);

}  // namespace mantissa::forecast
