#include "mantissa/cost/format_costs.h"

#include <algorithm>
#include <chrono>

#include "mantissa/kernels/adamw.h"
#include "mantissa/kernels/gemm.h"
#include "mantissa/kernels/quantize.h"
#include "mantissa/kernels/update.h"
#include "mantissa/tensor/storage.h"

namespace mantissa::cost {
namespace {

constexpr int kRounds = 8;
constexpr double kLongest = 3;       // seconds after which no round starts, in case of a slow machine
constexpr std::int64_t kSide = 768;  // of the square product
constexpr std::int64_t kWidth = std::int64_t{1} << 11;
constexpr std::int64_t kRows = std::int64_t{1} << 11;  // kRows · kWidth elements are converted and updated
constexpr auto kElements = static_cast<std::size_t>(kRows * kWidth);

template <class Work>
double seconds_of(const Work& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double product_seconds(const kernels::Context& ctx, const FormatCost& format) {
  const Scalar arithmetic = format.stored == Scalar::f64 ? Scalar::f64 : Scalar::f32;
  const Scalar stored = format.parts > 1 ? arithmetic : format.stored;
  constexpr auto kCount = static_cast<std::size_t>(kSide * kSide);
  const Storage a(kCount * bytes_of(stored)), b(kCount * bytes_of(stored));
  const Storage c(kCount * bytes_of(arithmetic));
  const Storage work(kernels::gemm_workspace(ctx, kSide, kSide, kSide, arithmetic, format.parts));
  kernels::Context local = ctx;
  local.workspace = work.data();
  local.workspace_bytes = work.size();
  kernels::Gemm g;
  g.m = g.n = g.k = kSide;
  g.a = {{a.data(), stored, kSide}, {format.stored, format.parts}, false};
  g.b = {{b.data(), stored, kSide}, {format.stored, format.parts}, true};
  g.c = {c.data(), arithmetic, kSide};
  kernels::gemm(local, g);  // touches the pages
  return seconds_of([&] { kernels::gemm(local, g); });
}

double conversion_seconds(const kernels::Context& ctx, const FormatCost& format, const Storage& from,
                          const Storage& to) {
  return seconds_of([&] {
    if (format.blocks) {
      kernels::quantize_blocks(ctx, kRows, kWidth, {from.data(), Scalar::f32, kWidth},
                               {to.data(), format.stored, kWidth}, *format.blocks, 1, false);
    } else {
      kernels::cast(ctx, kRows * kWidth, from.data(), Scalar::f32, to.data(), format.stored);
    }
  });
}

/// Measures one sweep of AdamW with weights and moments in `format`, rounded stochastically except for f32.
double update_seconds(const kernels::Context& ctx, Scalar format, const Storage& memory) {
  const std::size_t part = memory.size() / 4;
  kernels::AdamW u;
  u.count = kRows * kWidth;
  u.master = memory.data();
  u.gradient = memory.data() + part;
  u.first_moment = memory.data() + 2 * part;
  u.second_moment = memory.data() + 3 * part;
  u.master_type = u.gradient_type = u.moment_type = format;
  u.rounding = format == Scalar::f32 ? Rounding::nearest : Rounding::stochastic;
  u.beta1 = 0.9;
  u.beta2 = 0.95;
  u.eps = 1e-8;
  return seconds_of([&] { kernels::adamw(ctx, u); });
}

std::vector<FormatCost> formats() {
  std::vector<FormatCost> all;
  for (const Scalar s :
       {Scalar::f64, Scalar::f32, Scalar::tf32, Scalar::bf16, Scalar::f16, Scalar::e5m2, Scalar::e4m3})
    all.push_back({name(s), s});
  for (const BlockFormat b : {BlockFormat::mxfp8, BlockFormat::mxfp4, BlockFormat::nvfp4})
    all.push_back({traits(b).name, Scalar::bf16, 1, b});
  all.push_back({"bf16x3", Scalar::bf16, 2});
  all.push_back({"bf16x6", Scalar::bf16, 3});
  return all;
}

}  // namespace

const FormatCost& Costs::of(std::string_view format) const {
  return *std::find_if(formats.begin(), formats.end(), [&](const FormatCost& c) { return c.name == format; });
}

Costs measure_costs(const runtime::Device& device) {
  const kernels::Context& ctx = device.host();
  Costs costs{formats(), {}};
  const Storage from(kElements * sizeof(float)), to(kElements * sizeof(double));
  const Storage trained(kElements * sizeof(float) * 4);
  constexpr double kFlops = 2.0 * static_cast<double>(kSide * kSide * kSide);
  const auto best = [](double& rate, double work, double seconds) { rate = std::max(rate, work / seconds); };
  const auto start = std::chrono::steady_clock::now();
  const auto late = [&] {
    return std::chrono::steady_clock::now() - start > std::chrono::duration<double>(kLongest);
  };
  for (int round = 0; round < kRounds && !(round > 0 && late()); ++round) {
    for (FormatCost& c : costs.formats) {
      best(c.product, kFlops, product_seconds(ctx, c));
      if (c.parts == 1) best(c.conversion, kElements, conversion_seconds(ctx, c, from, to));
    }
    best(costs.update.f32, kElements, update_seconds(ctx, Scalar::f32, trained));
    best(costs.update.bf16_stochastic, kElements, update_seconds(ctx, Scalar::bf16, trained));
  }
  return costs;
}

}  // namespace mantissa::cost
