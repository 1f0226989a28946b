#include "mantissa/setup/forecast/doctor.h"

#include <fmt/format.h>

#include <thread>

#include "mantissa/engine/runtime/process.h"
#include "mantissa/engine/runtime/surroundings.h"
#include "mantissa/kernels/peak.h"

namespace mantissa::forecast {
namespace {

struct Choice {
  std::string preset, why;
};

/// bf16 or f16 is worthwhile if it halves the bytes of activations at nearly the speed of f32. bf16 comes
/// first: with f32's range it needs no loss scale.
Choice choose_preset(const Costs& costs) {
  constexpr double kWorthIt = 0.9;
  const double f32 = costs.of("f32").product;
  const double bf16 = costs.of("bf16").product, f16 = costs.of("f16").product;
  const std::string speeds =
      fmt::format("measured here, bf16 products run at {:.2f} and f16 products at {:.2f} times the f32 speed",
                  bf16 / f32, f16 / f32);
  if (bf16 >= kWorthIt * f32)
    return {"bf16-mixed",
            speeds + "; activations take half the memory, weights stay f32, and bf16 needs no loss scale"};
  if (f16 >= kWorthIt * f32)
    return {"16-mixed", speeds + "; activations take half the memory, weights stay f32 under a loss scale"};
  return {"32-true", speeds + ", so mixed precision would cost time"};
}

UnitCheck check_unit(const kernels::Unit& unit, const runtime::Device& device, double fma_peak,
                     const Costs& costs) {
  UnitCheck u;
  u.unit = &unit;
  u.present = kernels::is_present(unit);
  u.used = unit.sets.has(device.host().simd);
  u.why = kernels::why(unit, device.host().simd);
  u.peak = unit.id == kernels::UnitId::fma ? fma_peak : kernels::measure_peak(device.host(), unit.id);
  const FormatCost& native = costs.of(name(unit.native));
  if (native.support.unit == unit.name) u.product = native.product;
  return u;
}

}  // namespace

Checkup check_machine(const runtime::Device& device) {
  Checkup m;
  m.cpu = kernels::processor_name();
  m.cores = std::thread::hardware_concurrency();
  m.threads = device.host().threads;
  m.simd = device.instructions();
  m.flops_per_second = kernels::measure_fma_peak(device.host(), Scalar::f32);
  m.bytes_per_second = kernels::measure_bandwidth(device.host(), std::size_t{384} << 20U);
  m.memory_bytes = runtime::machine_memory_bytes();
  m.available_memory_bytes = runtime::available_memory_bytes();
  m.accelerators = runtime::seen_accelerators();
  m.launchers = runtime::seen_launchers();
  m.features = kernels::processor_features(device.host().simd);
  m.costs = measure_costs(device);
  for (const kernels::Unit& unit : kernels::units())
    if (UnitCheck u = check_unit(unit, device, m.flops_per_second, m.costs);
        u.used || !u.present || u.peak > 0)  // models only if they are used
      m.units.push_back(u);
  Choice choice = choose_preset(m.costs);
  m.preset = std::move(choice.preset);
  m.why = std::move(choice.why);
  return m;
}

}  // namespace mantissa::forecast
