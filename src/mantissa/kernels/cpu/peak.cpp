#include "mantissa/kernels/peak.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "mantissa/core/tensor/storage.h"
#include "mantissa/kernels/cpu/bf16_pairs.h"
#include "mantissa/kernels/cpu/tiles/amx_tiles.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "mantissa/kernels/cpu/peak.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mantissa::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Runs `rounds` rounds of twelve independent fused multiply-adds, enough to hide their latency. Consecutive
/// ones have operands with different bits, as those of matrices: with equal ones a processor can run at a
/// higher clock. Chains and operands fit 16 registers. Returns the number of flops; `sink` keeps the results
/// alive.
template <class T>
double FmaRounds(std::int64_t rounds, T* sink) {
  const hn::ScalableTag<T> d;
  constexpr std::size_t kLanes = hn::MaxLanes(hn::ScalableTag<T>());
  // A chain tends to other / (1 - scale), or with both exchanged: another number in each lane.
  HWY_ALIGN T numbers[14 * kLanes];
  std::minstd_rand bits(1);
  for (T& x : numbers) x = static_cast<T>(bits()) / static_cast<T>(std::minstd_rand::max());
  const auto at = [&](std::size_t i) HWY_ATTR { return hn::Load(d, numbers + i * kLanes); };
  const auto scale = hn::Sub(at(12), hn::Set(d, static_cast<T>(0.5))),
             other = hn::Sub(at(13), hn::Set(d, static_cast<T>(0.5)));
  auto a0 = at(0), a1 = at(1), a2 = at(2), a3 = at(3), a4 = at(4), a5 = at(5), a6 = at(6), a7 = at(7),
       a8 = at(8), a9 = at(9), a10 = at(10), a11 = at(11);
  for (std::int64_t r = 0; r < rounds; ++r) {
    a0 = hn::MulAdd(a0, scale, other);
    a1 = hn::MulAdd(a1, other, scale);
    a2 = hn::MulAdd(a2, scale, other);
    a3 = hn::MulAdd(a3, other, scale);
    a4 = hn::MulAdd(a4, scale, other);
    a5 = hn::MulAdd(a5, other, scale);
    a6 = hn::MulAdd(a6, scale, other);
    a7 = hn::MulAdd(a7, other, scale);
    a8 = hn::MulAdd(a8, scale, other);
    a9 = hn::MulAdd(a9, other, scale);
    a10 = hn::MulAdd(a10, scale, other);
    a11 = hn::MulAdd(a11, other, scale);
  }
  const auto sum = hn::Add(
      hn::Add(hn::Add(a0, a1), hn::Add(a2, a3)),
      hn::Add(hn::Add(hn::Add(a4, a5), hn::Add(a6, a7)), hn::Add(hn::Add(a8, a9), hn::Add(a10, a11))));
  *sink = hn::GetLane(hn::SumOfLanes(d, sum));
  return static_cast<double>(rounds) * 12 * 2 * static_cast<double>(hn::Lanes(d));
}

double FmaImpl(bool f64, std::int64_t rounds, double* sink) {
  if (f64) return FmaRounds<double>(rounds, sink);
  float sum = 0;
  const double flops = FmaRounds<float>(rounds, &sum);
  *sink = static_cast<double>(sum);
  return flops;
}

void TriadImpl(const float* b, const float* c, float* a, std::size_t n) {
  const hn::ScalableTag<float> d;
  const auto scale = hn::Set(d, 3.0F);
  for (std::size_t i = 0; i < n; i += hn::Lanes(d))
    hn::StoreU(hn::MulAdd(scale, hn::LoadU(d, c + i), hn::LoadU(d, b + i)), d, a + i);
}

double SumImpl(const float* x, std::size_t n) {
  const hn::ScalableTag<float> d;
  const std::size_t lanes = hn::Lanes(d);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (std::size_t i = 0; i < n; i += 4 * lanes) {
    s0 = hn::Add(s0, hn::LoadU(d, x + i));
    s1 = hn::Add(s1, hn::LoadU(d, x + i + lanes));
    s2 = hn::Add(s2, hn::LoadU(d, x + i + 2 * lanes));
    s3 = hn::Add(s3, hn::LoadU(d, x + i + 3 * lanes));
  }
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)))));
}

}  // namespace HWY_NAMESPACE
}  // namespace mantissa::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mantissa::kernels {
namespace {

HWY_EXPORT(FmaImpl);
HWY_EXPORT(TriadImpl);
HWY_EXPORT(SumImpl);

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Returns the processor time of the calling thread.
double thread_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Runs `rounds` rounds of multiply-adds and returns the number of flops.
using Rounds = std::function<double(std::int64_t rounds, double* sink)>;

/// Returns flop/s on all threads: the best of `runs` runs of about 0.5 ms.
double measure_rounds(const Context& ctx, const Rounds& work, int runs) {
  // Many short runs of about 0.5 ms: on a shared machine some run undisturbed. If all threads never had a
  // core each, processor time gives the rate they would have had.
  constexpr std::int64_t kRounds = 1 << 17;
  const int most_runs = 3 * runs;
  constexpr double kAlone = 0.9, kMostSeconds = 0.1;  // the latter for slow code, as under a sanitizer
  const auto threads = static_cast<std::size_t>(ctx.threads);
  const bool enough_cores = static_cast<unsigned>(ctx.threads) <= std::thread::hardware_concurrency();
  std::vector<double> sinks(threads), flops(threads), busy(threads);
  double best = 0, best_by_core = 0, spent = 0;
  bool alone = !enough_cores;
  for (int run = 0; spent < kMostSeconds && (run < runs || (!alone && run < most_runs)); ++run) {
    const double seconds = seconds_of([&] {
      parallel_for(ctx, ctx.threads, [&](std::int64_t i, int) {
        const auto at = static_cast<std::size_t>(i);
        const double begin = thread_seconds();
        flops[at] = work(kRounds, &sinks[at]);
        busy[at] = thread_seconds() - begin;
      });
    });
    spent += seconds;
    best = std::max(best, std::accumulate(flops.begin(), flops.end(), 0.0) / seconds);
    double by_core = 0;
    for (std::size_t t = 0; t < threads; ++t) by_core += flops[t] / busy[t];
    best_by_core = std::max(best_by_core, by_core);
    alone = alone || std::accumulate(busy.begin(), busy.end(), 0.0) > kAlone * seconds * ctx.threads;
  }
  return alone ? best : best_by_core;
}

/// Multiplies two tiles by two, of random numbers, in registers. Four sums hide the latency.
double tile_rounds(std::int64_t rounds, double* sink) {
  constexpr std::int64_t kFewer = 8;  // a tile's products take longer than a vector's
  constexpr double kFlops = 4 * 2 * 16 * 16 * 32;
  *sink = 0;
#if defined(__x86_64__)
  constexpr std::size_t kTile = kTileRegisterRows * kTileRowBytes / sizeof(std::uint16_t);
  std::uint16_t numbers[4 * kTile];  // bf16, of both signs, from 0.5 to 1
  std::minstd_rand bits(1);
  for (std::uint16_t& x : numbers) x = static_cast<std::uint16_t>(0x3f00U | (bits() >> 8U & 0x807fU));
  const HardwareTiles::Scope scope;
  HardwareTiles tiles;
  tiles.load<4>(numbers, kTileRowBytes);
  tiles.load<5>(numbers + kTile, kTileRowBytes);
  tiles.load<6>(numbers + 2 * kTile, kTileRowBytes);
  tiles.load<7>(numbers + 3 * kTile, kTileRowBytes);
  for (std::int64_t r = 0; r < rounds / kFewer; ++r) {
    tiles.multiply_add<0, 4, 6>();
    tiles.multiply_add<1, 4, 7>();
    tiles.multiply_add<2, 5, 6>();
    tiles.multiply_add<3, 5, 7>();
  }
#endif
  return static_cast<double>(rounds / kFewer) * kFlops;
}

}  // namespace

double measure_fma_peak(const Context& ctx, Scalar arithmetic, int runs) {
  const auto fma = HWY_DISPATCH_TABLE(FmaImpl)[ctx.target()];
  return measure_rounds(
      ctx, [&](std::int64_t rounds, double* sink) { return fma(arithmetic == Scalar::f64, rounds, sink); },
      runs);
}

double measure_peak(const Context& ctx, UnitId id, int runs) {
  if (!is_present(unit(id))) return 0;
  switch (id) {
    case UnitId::fma:
      return measure_fma_peak(ctx, Scalar::f32, runs);
    case UnitId::vdpbf16ps:
      return measure_rounds(ctx, bf16_pair_rounds, runs);
    case UnitId::tdpbf16ps:
      return measure_rounds(ctx, tile_rounds, runs);
    case UnitId::tile_model:
      return 0;
  }
  return 0;
}

double measure_bandwidth(const Context& ctx, std::size_t bytes) {
  constexpr std::size_t kPart = std::size_t{1} << 16;
  constexpr std::size_t kMost = std::size_t{1} << 25;  // 128 MB per array: more than caches hold
  const std::size_t elements =
      std::clamp(bytes / (3 * sizeof(float)) / kPart, std::size_t{1}, kMost / kPart) * kPart;
  const Storage memory(3 * elements * sizeof(float));
  auto* a = reinterpret_cast<float*>(memory.data());
  // Touches the pages: untouched pages all map to one zero page, which costs nothing to read.
  parallel_for(ctx, static_cast<std::int64_t>(3 * elements / kPart), [&](std::int64_t i, int) {
    std::fill_n(a + static_cast<std::size_t>(i) * kPart, kPart, 1.0F);
  });
  const float* b = a + elements;
  const float* c = b + elements;
  double best = 0;
  for (int run = 0; run < 4; ++run) {
    const double seconds = seconds_of([&] {
      parallel_for(ctx, static_cast<std::int64_t>(elements / kPart), [&](std::int64_t i, int) {
        const std::size_t at = static_cast<std::size_t>(i) * kPart;
        HWY_DISPATCH_TABLE(TriadImpl)[ctx.target()](b + at, c + at, a + at, kPart);
      });
    });
    best = std::max(best, 3.0 * static_cast<double>(elements * sizeof(float)) / seconds);
  }
  return best;
}

double measure_read_bandwidth(const Context& ctx) {
  constexpr std::size_t kPart = std::size_t{1} << 16, kParts = 1024;
  const Storage memory(kParts * kPart * sizeof(float));
  auto* x = reinterpret_cast<float*>(memory.data());
  std::vector<double> sums(kParts);
  const auto pass = [&](const std::function<double(float*)>& work) {
    return seconds_of([&] {
      parallel_for(ctx, kParts, [&](std::int64_t i, int) {
        const auto part = static_cast<std::size_t>(i);
        sums[part] = work(x + part * kPart);
      });
    });
  };
  pass([](float* part) {
    std::fill_n(part, kPart, 1.0F);
    return 0.0;
  });
  double best = 0;
  for (int run = 0; run < 5; ++run) {
    const double seconds =
        pass([&](float* part) { return HWY_DISPATCH_TABLE(SumImpl)[ctx.target()](part, kPart); });
    best = std::max(best, static_cast<double>(memory.size()) / seconds);
  }
  return best;
}

}  // namespace mantissa::kernels
#endif  // HWY_ONCE
