#include "mantissa/setup/forecast/product_rates.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <random>
#include <thread>
#include <utility>

#include "mantissa/kernels/gemm.h"
#include "mantissa/kernels/scaled.h"
#include "mantissa/kernels/update.h"

namespace mantissa::forecast {
namespace {

/// Returns values of both signs within a few binades of 1, whose bits are random: units that toggle few bits
/// take less power and run at a higher clock.
Storage values_of(std::int64_t count) {
  Storage values(static_cast<std::size_t>(count) * sizeof(float));
  auto* x = reinterpret_cast<float*>(values.data());
  std::minstd_rand bits(1);
  for (std::int64_t i = 0; i < count; ++i)
    x[i] = (static_cast<float>(bits()) / static_cast<float>(std::minstd_rand::max()) - 0.5F) * 4;
  return values;
}

/// The time since construction.
class Clocks {
 public:
  /// Returns the time that work on `threads` threads took. On a shared machine, if its processor time is much
  /// less than its share of the elapsed time, the time that it would have taken with a core for each.
  double seconds(int threads) const {
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    if (static_cast<unsigned>(threads) > std::thread::hardware_concurrency()) return elapsed;
    const double busy = static_cast<double>(std::clock() - busy_) / CLOCKS_PER_SEC / threads;
    constexpr double kDisturbed = 1.5;  // threads that wait for each other take less
    return busy > 0 && elapsed > kDisturbed * busy ? busy : elapsed;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::clock_t busy_ = std::clock();
};

}  // namespace

const std::byte* ProductMemory::factor(const runtime::Device& device, const Layout& layout, std::int64_t side,
                                       bool second) {
  const auto there = std::ranges::find_if(
      factors_, [&](const Factor& f) { return f.layout == layout && f.side == side && f.second == second; });
  if (there != factors_.end()) return there->memory.data();
  const std::int64_t count = side * side;
  const Factor& made = factors_.emplace_back(layout, side, second, Storage(layout.bytes(side, side)));
  const Storage values = values_of(count);
  if (layout.blocks) {
    kernels::pack_blocks(device.host(), side, side, {values.data(), Scalar::f32, side}, made.memory.data(),
                         *layout.blocks, 1);
  } else {
    kernels::cast(device.host(), count, values.data(), Scalar::f32, made.memory.data(), layout.type);
  }
  return made.memory.data();
}

std::size_t ProductMemory::bytes_for(const runtime::Device& device,
                                     std::span<const plan::StoredProduct> products, std::int64_t side) {
  std::vector<std::pair<Layout, bool>> factors;
  const auto square = static_cast<std::size_t>(side * side);
  std::size_t bytes = square * sizeof(float);  // values before they are packed
  std::size_t result = 0, work = 0;
  for (const plan::StoredProduct& p : products) {
    for (const std::pair<Layout, bool>& factor : {std::pair(p.a, false), std::pair(p.b, true)}) {
      if (std::ranges::find(factors, factor) != factors.end()) continue;
      factors.push_back(factor);
      bytes += factor.first.bytes(side, side);
    }
    const Product& product = p.product;
    result = std::max(result, square * bytes_of(product.arithmetic));
    work = std::max(
        work, kernels::gemm_workspace(device.host(), side, side, side, product.arithmetic, product.a.parts));
  }
  return bytes + result + work;
}

std::byte* ProductMemory::at_least(Storage& storage, std::size_t bytes) {
  if (storage.size() < bytes) {
    storage = Storage();
    storage = Storage(bytes);
  }
  return storage.data();
}

ProductTimer::ProductTimer(const runtime::Device& device, const plan::StoredProduct& product,
                           std::int64_t side, ProductMemory& memory)
    : device_(device),
      product_(product),
      side_(side),
      a_(memory.factor(device, product.a, side, false)),
      b_(memory.factor(device, product.b, side, true)),
      memory_(memory) {
  measure(0);  // touches the pages
}

double ProductTimer::measure(double least) const {
  const Product& p = product_.product;
  const auto bound = [&](const std::byte* data, const Layout& layout, const Factor& factor, bool transposed) {
    kernels::GemmOperand g{{data, layout.type, side_}, factor, transposed};
    if (layout.blocks) {
      g.blocks = layout.blocks;
      g.scales = data + layout.scales_begin(side_, side_);
    }
    return g;
  };
  kernels::Gemm g;
  g.m = g.n = g.k = side_;
  g.a = bound(a_, product_.a, p.a, product_.a_across);
  g.b = bound(b_, product_.b, p.b, !product_.b_across);
  g.c = {memory_.result(static_cast<std::size_t>(side_ * side_) * bytes_of(p.arithmetic)), p.arithmetic,
         side_};
  g.accumulator = p.accumulator;
  auto ctx = device_.host();
  ctx.workspace_bytes = kernels::gemm_workspace(ctx, side_, side_, side_, p.arithmetic, p.a.parts);
  ctx.workspace = memory_.work(ctx.workspace_bytes);
  const Clocks start;
  double products = 0, seconds = 0;
  do {
    kernels::gemm(ctx, g);
    ++products;
    seconds = start.seconds(ctx.threads);
  } while (seconds < least);
  const auto side = static_cast<double>(side_);
  return products * 2 * side * side * side / seconds;
}

const kernels::Unit& unit_on(const runtime::Device& device, const plan::StepProduct& product) {
  return kernels::unit_of(device.host().simd, product.stored.product, product.kernel);
}

}  // namespace mantissa::forecast
