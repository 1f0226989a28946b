#include "mantissa/kernels/context.h"

#include <fmt/format.h>
#include <hwy/highway.h>

#include "mantissa/base/error.h"
#include "mantissa/kernels/thread_pool.h"

namespace mantissa::kernels {

SimdTarget simd_target(Simd simd) {
  switch (simd) {
    case Simd::avx2:
      return HWY_AVX2;
    case Simd::avx512:
      return HWY_AVX3;
    case Simd::neon:
      return HWY_NEON;
  }
  return kBestTarget;
}

std::string_view name(Simd simd) {
  switch (simd) {
    case Simd::avx2:
      return "avx2";
    case Simd::avx512:
      return "avx512";
    case Simd::neon:
      return "neon";
  }
  return "?";
}

Simd best_simd() {
  const std::int64_t supported = hwy::SupportedTargets();
  for (const Simd simd : {Simd::avx512, Simd::avx2, Simd::neon}) {
    if ((supported & simd_target(simd)) != 0) return simd;
  }
  throw ResourceError(
      "this processor has no fused multiply-add (AVX2, AVX-512 or NEON is required); run on a newer machine");
}

Simd parse_simd(std::string_view text) {
  for (const Simd simd : {Simd::avx2, Simd::avx512, Simd::neon}) {
    if (text != name(simd)) continue;
    if ((hwy::SupportedTargets() & simd_target(simd)) == 0) {
      throw ConfigError(fmt::format("--simd {}: this processor does not support it; the best set here is {}",
                                    text, name(best_simd())));
    }
    return simd;
  }
  throw ConfigError(fmt::format("--simd {}: unknown instruction set (sets: avx2, avx512, neon)", text));
}

std::size_t dispatch_index(Simd simd) {
  return simd_index(simd_target(simd));
}

void parallel_for(const Context& ctx, std::int64_t count,
                  const std::function<void(std::int64_t, int)>& body) {
  if (ctx.threads <= 1 || count <= 1) {
    for (std::int64_t i = 0; i < count; ++i) body(i, 0);
    return;
  }
  if (ctx.pool != nullptr) {
    ctx.pool->run(count, body);
  } else {
    ThreadPool(ctx.threads).run(count, body);
  }
}

}  // namespace mantissa::kernels
