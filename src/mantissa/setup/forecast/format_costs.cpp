#include "mantissa/setup/forecast/format_costs.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/formulas.h"
#include "mantissa/kernels/scaled.h"
#include "mantissa/kernels/sweep.h"
#include "mantissa/kernels/update.h"
#include "mantissa/setup/forecast/product_rates.h"

namespace mantissa::forecast {
namespace {

constexpr int kRounds = 8;
constexpr double kLongest = 3;       // seconds after which no round starts, in case of a slow machine
constexpr std::int64_t kSide = 768;  // of the square products
constexpr std::int64_t kWidth = std::int64_t{1} << 11;
constexpr std::int64_t kRows = std::int64_t{1} << 11;  // kRows · kWidth elements are converted and updated
constexpr auto kElements = static_cast<std::size_t>(kRows * kWidth);

template <class Work>
double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double conversion_seconds(const kernels::Context& ctx, const FormatCost& format, const Storage& from,
                          const Storage& to) {
  return seconds_of([&] {
    const Layout& stored = format.factors.a;
    if (stored.blocks) {
      kernels::pack_blocks(ctx, kRows, kWidth, {from.data(), Scalar::f32, kWidth}, to.data(), *stored.blocks,
                           1);
    } else {
      kernels::cast(ctx, kRows * kWidth, from.data(), Scalar::f32, to.data(), stored.type);
    }
  });
}

/// Measures one sweep of AdamW with weights and moments in `format`, rounded stochastically except for f32.
double update_seconds(const kernels::Context& ctx, Scalar format, const Storage& memory) {
  const std::size_t part = memory.size() / 4;
  const auto row = [&](std::size_t i) { return kernels::PointwiseInput{memory.data() + i * part, format}; };
  constexpr std::array<double, kernels::kAdamWNumbers> kNumbers = {1, 0.9, 0.1, 0.95, 0.05,
                                                                   0, 1,   0.1, 0.05, 1e-8};
  std::array<kernels::PointwiseInput, 4 + kNumbers.size()> inputs = {row(0), row(1), row(2), row(3)};
  for (std::size_t i = 0; i < kNumbers.size(); ++i)
    inputs[4 + i] = {&kNumbers[i], Scalar::f64, kernels::Broadcast::everywhere};
  const Rounding rounding = format == Scalar::f32 ? Rounding::nearest : Rounding::stochastic;
  const std::array<kernels::SweepOutput, 3> outputs = {
      {{memory.data(), format, rounding, RandomUse::rounding},
       {memory.data() + 2 * part, format, rounding, RandomUse::first_moment},
       {memory.data() + 3 * part, format, rounding, RandomUse::second_moment}}};
  const Scalar arithmetic = format == Scalar::f64 ? Scalar::f64 : Scalar::f32;
  const kernels::Sweep sweep{kernels::adamw_program(false), 1, kRows * kWidth, inputs, outputs, arithmetic};
  return seconds_of([&] { kernels::sweep(ctx, sweep); });
}

/// Returns the cost, not yet measured, of factors that lie in memory as `stored`.
FormatCost cost_of(const kernels::Context& ctx, std::string_view name, const Layout& stored, Factor factor) {
  const Scalar arithmetic = factor.format == Scalar::f64 ? Scalar::f64 : Scalar::f32;
  const Accumulator sums{arithmetic, 0, usual_order(factor, factor)};
  return {kernels::format_support(name, ctx.simd), {{arithmetic, factor, factor, sums}, stored, stored}};
}

std::vector<FormatCost> formats(const kernels::Context& ctx) {
  std::vector<FormatCost> all;
  for (const Scalar s :
       {Scalar::f64, Scalar::f32, Scalar::tf32, Scalar::bf16, Scalar::f16, Scalar::e5m2, Scalar::e4m3})
    all.push_back(cost_of(ctx, name(s), {.type = s}, s));
  for (const BlockFormat b : {BlockFormat::mxfp8, BlockFormat::mxfp4, BlockFormat::nvfp4})
    all.push_back(cost_of(ctx, traits(b).name, {.type = Scalar::bf16, .blocks = Blocks{b}}, Scalar::bf16));
  all.push_back(cost_of(ctx, "bf16x3", {.type = Scalar::f32}, {Scalar::bf16, 2}));
  all.push_back(cost_of(ctx, "bf16x6", {.type = Scalar::f32}, {Scalar::bf16, 3}));
  return all;
}

}  // namespace

const FormatCost& Costs::of(std::string_view format) const {
  return *std::find_if(formats.begin(), formats.end(),
                       [&](const FormatCost& c) { return c.support.format == format; });
}

Costs measure_costs(const runtime::Device& device) {
  const kernels::Context& ctx = device.host();
  Costs costs{formats(ctx), {}};
  ProductMemory memory;
  std::vector<ProductTimer> timers;
  for (const FormatCost& c : costs.formats) timers.emplace_back(device, c.factors, kSide, memory);
  const Storage from(kElements * sizeof(float)), to(kElements * sizeof(double));
  const Storage trained(kElements * sizeof(float) * 4);
  const auto best = [](double& rate, double work, double seconds) { rate = std::max(rate, work / seconds); };
  const auto start = std::chrono::steady_clock::now();
  const auto late = [&] {
    return std::chrono::steady_clock::now() - start > std::chrono::duration<double>(kLongest);
  };
  for (int round = 0; round < kRounds && !(round > 0 && late()); ++round) {
    for (std::size_t i = 0; i < timers.size(); ++i) {
      FormatCost& c = costs.formats[i];
      c.product = std::max(c.product, timers[i].measure());
      if (c.factors.product.a.parts == 1) best(c.conversion, kElements, conversion_seconds(ctx, c, from, to));
    }
    best(costs.update.f32, kElements, update_seconds(ctx, Scalar::f32, trained));
    best(costs.update.bf16_stochastic, kElements, update_seconds(ctx, Scalar::bf16, trained));
  }
  return costs;
}

}  // namespace mantissa::forecast
