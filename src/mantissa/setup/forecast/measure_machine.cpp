// The measured rates of this machine.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "mantissa/kernels/peak.h"
#include "mantissa/setup/forecast/forecast.h"

namespace mantissa::forecast {
namespace {

/// The rates of one instruction set, number of threads and arithmetic, measured by this process.
struct Known {
  double fma = 0;
  std::vector<ProductRate> products;
  std::vector<UnitRate> units;
};

/// Returns the side of square products to time: large enough for their full speed, but their memory is at
/// most half of `free_bytes`.
std::int64_t side_for(const runtime::Device& device, std::span<const plan::StoredProduct> products,
                      std::size_t free_bytes) {
  constexpr std::int64_t kMost = 768, kLeast = 128, kStep = 64;
  std::int64_t side = kMost;
  while (side > kLeast && ProductMemory::bytes_for(device, products, side) > free_bytes / 2) side -= kStep;
  return side;
}

/// Times each product `rounds` times, in turn, so that other load affects all alike.
void time_products(const runtime::Device& device, std::int64_t side, int rounds,
                   std::span<ProductRate*> rates) {
  constexpr double kLongest = 0.1;  // seconds after which no round starts
  constexpr std::int64_t kSmallSide = 128;
  ProductMemory memory;
  std::vector<ProductTimer> timers;
  for (const ProductRate* r : rates) {
    // Slow code, as under a sanitizer, is timed with small products.
    const ProductTimer small(device, r->product, kSmallSide, memory);
    constexpr double kGlance = 1e-3;
    const double flops = 2 * std::pow(static_cast<double>(side), 3);
    const bool slow = side <= kSmallSide || flops / small.measure(kGlance) > kLongest;
    timers.push_back(slow ? small : ProductTimer(device, r->product, side, memory));
  }
  const auto start = std::chrono::steady_clock::now();
  const auto late = [&] {
    return std::chrono::steady_clock::now() - start > std::chrono::duration<double>(kLongest);
  };
  for (int round = 0; round < rounds && !(round > 0 && late()); ++round) {
    for (std::size_t i = 0; i < timers.size(); ++i)
      rates[i]->flops_per_second = std::max(rates[i]->flops_per_second, timers[i].measure());
  }
}

}  // namespace

double Machine::peak_of(kernels::UnitId unit) const {
  const auto rate = std::ranges::find(units, unit, &UnitRate::unit);
  // A model of a unit has no peak of its own.
  return rate == units.end() || rate->flops_per_second == 0 ? flops_per_second : rate->flops_per_second;
}

Machine measure_machine(const runtime::Device& device, const plan::Program& program, std::size_t free_bytes,
                        int rests) {
  // Properties of the processor, which all trainers and forecasts share (docs/architecture.md).
  static std::mutex mutex;
  static std::map<std::tuple<std::string, int, Scalar>, Known> all;
  const std::scoped_lock lock(mutex);
  Known& known = all[{std::string(device.instructions()), device.host().threads, program.arithmetic}];
  const bool fma_is_new = known.fma == 0;

  const std::vector<plan::StoredProduct> needed = plan::packed_products(program);
  const std::int64_t side = side_for(device, needed, free_bytes);
  const std::size_t old_products = known.products.size(), old_units = known.units.size();
  for (const plan::StoredProduct& p : needed) {
    if (std::ranges::find(known.products, p, &ProductRate::product) == known.products.end())
      known.products.push_back({p, 0});
    const kernels::UnitId unit = unit_on(device, {p}).id;
    if (unit != kernels::UnitId::fma &&
        std::ranges::find(known.units, unit, &UnitRate::unit) == known.units.end())
      known.units.push_back({unit, 0});
  }
  std::vector<ProductRate*> fresh;
  for (std::size_t i = old_products; i < known.products.size(); ++i) fresh.push_back(&known.products[i]);

  // As much in all for any number of measurements.
  constexpr int kProductRounds = 10;
  const int measurements = 2 + rests;
  const int runs = kernels::kPeakRuns / measurements, rounds = kProductRounds / measurements;
  const auto measure = [&] {
    if (fma_is_new)
      known.fma = std::max(known.fma, kernels::measure_fma_peak(device.host(), program.arithmetic, runs));
    for (std::size_t i = old_units; i < known.units.size(); ++i) {
      double& rate = known.units[i].flops_per_second;
      rate = std::max(rate, kernels::measure_peak(device.host(), known.units[i].unit, runs));
    }
    if (!fresh.empty()) time_products(device, side, rounds, fresh);
  };
  measure();
  const double bandwidth = kernels::measure_bandwidth(device.host(), free_bytes / 2);
  measure();
  const bool any_new = fma_is_new || !fresh.empty();
  for (int rest = 0; rest < rests && any_new; ++rest) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    measure();
  }
  Machine machine{known.fma, bandwidth};
  for (const plan::StoredProduct& p : needed)
    machine.products.push_back(*std::ranges::find(known.products, p, &ProductRate::product));
  machine.units = known.units;
  return machine;
}

}  // namespace mantissa::forecast
