#include "mantissa/kernels/cpu/bf16_pairs.h"

#include <algorithm>
#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>

namespace mantissa::kernels {
namespace {

constexpr int kChains = 12;  // more than the latency of either instruction

__attribute__((target("avx512f"), noinline)) float fused(float x, std::int64_t rounds) {
  __m512 sums[kChains];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  const __m512 a = _mm512_set1_ps(x);
  for (std::int64_t i = 0; i < rounds; ++i) {
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(a, a, sum);
  }
  for (const __m512& sum : sums) sums[0] = _mm512_add_ps(sums[0], sum);
  return _mm512_cvtss_f32(sums[0]);
}

__attribute__((target("avx512f,avx512bf16"), noinline)) float paired(float x, std::int64_t rounds) {
  __m512 sums[kChains];
  for (__m512& sum : sums) sum = _mm512_setzero_ps();
  const auto a = (__m512bh)_mm512_set1_ps(x);
  for (std::int64_t i = 0; i < rounds; ++i) {
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, a, a);
  }
  for (const __m512& sum : sums) sums[0] = _mm512_add_ps(sums[0], sum);
  return _mm512_cvtss_f32(sums[0]);
}

/// Returns the time of the fastest of a few runs.
double seconds_of(float (*work)(float, std::int64_t)) {
  constexpr std::int64_t kRounds = 1000;
  double best = 1;
  volatile float sink = 0;
  for (int run = 0; run < 5; ++run) {
    const auto start = std::chrono::steady_clock::now();
    sink = work(1.0F, kRounds);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  static_cast<void>(sink);
  return best;
}

}  // namespace

bool has_bf16_pairs() {
  return __builtin_cpu_supports("avx512bf16") != 0;
}

bool bf16_pairs_are_fast() {
  // A pair is two multiply-adds; packing for it costs a little more.
  static const bool fast = seconds_of(paired) < 1.6 * seconds_of(fused);
  return fast;
}

double bf16_pair_rounds(std::int64_t rounds, double* sink) {
  constexpr double kFlops = 16 * 2 * 2;  // lanes, products of a pair, operations
  *sink = static_cast<double>(paired(1.0F, rounds));
  return static_cast<double>(rounds) * kChains * kFlops;
}

}  // namespace mantissa::kernels

#else

namespace mantissa::kernels {

bool has_bf16_pairs() {
  return false;
}
bool bf16_pairs_are_fast() {
  return false;
}
double bf16_pair_rounds(std::int64_t /*rounds*/, double* /*sink*/) {
  return 0;
}

}  // namespace mantissa::kernels

#endif
