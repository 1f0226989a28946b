// The execution context of every kernel: instruction set, threads and scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "mantissa/core/numeric/simd_target.h"

namespace mantissa::kernels {

/// Instruction sets that kernels are compiled for. The choice does not change any bit.
enum class Simd : std::uint8_t {
  avx2,
  avx512,
  avx512_bf16,  // avx512, with VDPBF16PS for products of bf16 factors
  amx,          // avx512, with TDPBF16PS for products of bf16 factors
  amx_model,    // the widest set, with the same kernels on a model of that instruction: a slow aid for tests
  neon
};
inline constexpr Simd kSimds[] = {Simd::avx2, Simd::avx512,    Simd::avx512_bf16,
                                  Simd::amx,  Simd::amx_model, Simd::neon};

std::string_view name(Simd simd);

/// Returns true if this build has kernels of the set: those of all sets, or of the machine that built it
/// (MANTISSA_NATIVE).
bool is_compiled(Simd simd);

/// Returns true if this machine can run kernels of the set, and this build has them.
bool is_supported(Simd simd);

/// Returns the fastest instruction set of this machine; avx512_bf16 only where its products are faster than
/// fused multiply-adds, never amx_model. Throws ResourceError without fused multiply-add.
Simd best_simd();

/// Returns the set with the name `text` ("avx2"). Throws ConfigError if it is unknown or this machine lacks
/// it.
Simd parse_simd(std::string_view text);

/// Returns the same set for the row functions of `numeric`.
SimdTarget simd_target(Simd simd);

/// Returns the index of `simd` in a Highway dispatch table: HWY_DISPATCH_TABLE(Fn)[ctx.target()].
std::size_t dispatch_index(Simd simd);

class ThreadPool;

/// Passed to every kernel by const reference. `workspace` is scratch of at least the size that the kernel
/// states.
struct Context {
  Simd simd = Simd::avx2;
  int threads = 1;
  std::byte* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  std::shared_ptr<ThreadPool> pool = nullptr;  // of `threads` threads; if null, each loop starts its own
  /// The matrix that the next product of few rows reads, in equal shares in the order of the threads. Empty:
  /// unknown.
  std::span<const std::byte> next_weight = {};

  std::size_t target() const { return dispatch_index(simd); }
};

/// Calls body(index, thread) for index in [0, count), distributed over threads in an unspecified order.
/// Returns when all calls are done. `thread` is in [0, ctx.threads). The first exception of a call
/// propagates. Results must not depend on the distribution.
void parallel_for(const Context& ctx, std::int64_t count, const std::function<void(std::int64_t, int)>& body);

/// Returns the share of a thread in `memory`, of which each has the same.
inline std::span<const std::byte> share_of(std::span<const std::byte> memory, int threads, int thread) {
  const std::size_t share = memory.size() / static_cast<std::size_t>(threads);
  return memory.subspan(share * static_cast<std::size_t>(thread), share);
}

/// Lets threads that wait during the next loop load their shares of ctx.next_weight into their caches.
void prefetch_while_waiting(const Context& ctx);

}  // namespace mantissa::kernels
