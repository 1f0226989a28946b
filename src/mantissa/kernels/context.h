// What every kernel is given besides its operands: the instruction set, the threads, and scratch memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "mantissa/numeric/simd_target.h"

namespace mantissa::kernels {

/// Instruction sets that kernels are compiled for. Which one runs changes no bit.
enum class Simd : std::uint8_t { avx2, avx512, neon };

std::string_view name(Simd simd);

/// The best instruction set of this machine. Throws ResourceError where it has no fused multiply-add.
Simd best_simd();

/// The set called `text` ("avx2"). Throws ConfigError where it is unknown or this machine lacks it.
Simd parse_simd(std::string_view text);

/// The same set as the rows of `numeric` are told.
SimdTarget simd_target(Simd simd);

/// Index of `simd` in a Highway dispatch table: HWY_DISPATCH_TABLE(Fn)[ctx.target()].
std::size_t dispatch_index(Simd simd);

class ThreadPool;

/// Passed to every kernel by const reference. `workspace` is scratch of at least the kernel's stated need.
struct Context {
  Simd simd = Simd::avx2;
  int threads = 1;
  std::byte* workspace = nullptr;
  std::size_t workspace_bytes = 0;
  std::shared_ptr<ThreadPool> pool = nullptr;  // of `threads` threads; without one each loop starts its own

  std::size_t target() const { return dispatch_index(simd); }
};

/// Calls body(index, thread) for index in [0, count), dealt to threads in an unspecified order; returns when
/// all are done. `thread` is in [0, ctx.threads). The body must not throw. What it computes may not depend on
/// the dealing.
void parallel_for(const Context& ctx, std::int64_t count, const std::function<void(std::int64_t, int)>& body);

}  // namespace mantissa::kernels
