#include "mantissa/kernels/context.h"

#include <hwy/highway.h>

#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/kernels/cpu/bf16_pairs.h"
#include "mantissa/kernels/cpu/tiles/amx_tiles.h"
#include "mantissa/kernels/thread_pool.h"

namespace mantissa::kernels {

namespace {

SimdTarget widest_target() {
  for (const SimdTarget target : {HWY_AVX3, HWY_AVX2, HWY_NEON}) {
    if ((hwy::SupportedTargets() & HWY_TARGETS & target) != 0) return target;
  }
  return kBestTarget;
}

bool processor_has(Simd simd) {
  return (hwy::SupportedTargets() & simd_target(simd)) != 0;
}

}  // namespace

SimdTarget simd_target(Simd simd) {
  switch (simd) {
    case Simd::avx2:
      return HWY_AVX2;
    case Simd::avx512:
    case Simd::avx512_bf16:
    case Simd::amx:
      return HWY_AVX3;
    case Simd::amx_model:
      return widest_target();
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
    case Simd::avx512_bf16:
      return "avx512_bf16";
    case Simd::amx:
      return "amx";
    case Simd::amx_model:
      return "amx-model";
    case Simd::neon:
      return "neon";
  }
  return "?";
}

bool is_compiled(Simd simd) {
  return (HWY_TARGETS & simd_target(simd)) != 0;
}

bool is_supported(Simd simd) {
  if (!is_compiled(simd) || !processor_has(simd)) return false;
  if (simd == Simd::avx512_bf16) return has_bf16_pairs();
  if (simd == Simd::amx) return has_amx_tiles();
  return true;
}

Simd best_simd() {
  if (is_supported(Simd::amx)) return Simd::amx;
  if (is_supported(Simd::avx512_bf16) && bf16_pairs_are_fast()) return Simd::avx512_bf16;
  for (const Simd simd : {Simd::avx512, Simd::avx2, Simd::neon}) {
    if (is_supported(simd)) return simd;
  }
  throw ResourceError(
      "this processor has no fused multiply-add (AVX2, AVX-512 or NEON is required); run on a newer machine");
}

Simd parse_simd(std::string_view text) {
  std::vector<std::string> names;
  for (const Simd simd : kSimds) {
    names.emplace_back(name(simd));
    if (text != name(simd)) continue;
    if (!is_supported(simd)) {
      const std::string_view model =
          simd == Simd::amx ? ". amx-model runs the same kernels on a slow model of its tiles" : "";
      if (!is_compiled(simd) && processor_has(simd))
        throw ConfigError(
            "--simd {}: this processor supports it, but the machine that built this program does not, so it has "
            "no code for it; the best set here is {}{}. Fix: build the program on this machine, or with cmake "
            "-DMANTISSA_NATIVE=OFF",
            text, name(best_simd()), model);
      throw ConfigError("--simd {}: this processor does not support it; the best set here is {}{}", text,
                        name(best_simd()), model);
    }
    return simd;
  }
  throw ConfigError("--simd {}: unknown instruction set{} (sets: {})", in_quotes(text),
                    did_you_mean(text, names), list_of(names));
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

void prefetch_while_waiting(const Context& ctx) {
  if (ctx.pool != nullptr) ctx.pool->prefetch_while_waiting(ctx.next_weight);
}

}  // namespace mantissa::kernels
