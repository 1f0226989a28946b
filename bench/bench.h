// Shared by the benchmarks.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "mantissa/kernels/context.h"
#include "mantissa/kernels/thread_pool.h"

namespace mantissa::bench {

/// Returns a context with the machine's best instruction set and `threads` threads; 0: one per core.
inline kernels::Context context(int threads = 0) {
  kernels::Context ctx;
  ctx.simd = kernels::best_simd();
  ctx.threads = threads > 0 ? threads : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  ctx.pool = std::make_shared<kernels::ThreadPool>(ctx.threads);
  return ctx;
}

/// Returns the context of a program whose first argument is the number of threads.
inline kernels::Context context(int argc, char** argv) {
  return context(argc > 1 ? std::atoi(argv[1]) : 0);
}

/// Returns the median, the upper one for an even number. `values` is not empty.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Returns the time that `f` takes.
inline double seconds(const std::function<void()>& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace mantissa::bench
