#include "mantissa/api/hardware.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "mantissa/api/internal.h"
#include "mantissa/base/error.h"
#include "mantissa/kernels/thread_pool.h"

namespace mantissa::api {

kernels::Context context_for(const Hardware& hardware, std::int64_t config_threads) {
  if (hardware.device != "cpu") {
    throw ConfigError(
        fmt::format("--device {}: this build runs on the CPU; remove --device", hardware.device));
  }
  kernels::Context ctx;
  ctx.simd = hardware.simd.empty() ? kernels::best_simd() : kernels::parse_simd(hardware.simd);
  const std::int64_t asked = hardware.threads != 0 ? hardware.threads : config_threads;
  constexpr std::int64_t kMostThreads = 1024;
  if (asked < 0 || asked > kMostThreads) {
    throw ConfigError(
        fmt::format("--threads {}: must be between 1 and {}, or 0 for all cores", asked, kMostThreads));
  }
  const auto cores = static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
  ctx.threads = static_cast<int>(asked > 0 ? asked : cores);
  ctx.pool = std::make_shared<kernels::ThreadPool>(ctx.threads);
  return ctx;
}

}  // namespace mantissa::api
