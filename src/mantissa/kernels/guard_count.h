// Counts fast-unit products and fallbacks to FMA. A fast unit flushes subnormal numbers to zero, so blocks in
// which one could occur fall back.
#pragma once

#include <cstdint>

namespace mantissa::kernels {

/// Products of a block of A's rows and a block of B's columns, with up to a few hundred terms. Attention
/// counts those of tiles.
struct GuardCount {
  std::uint64_t fast = 0;  // by the unit
  std::uint64_t slow = 0;  // by fused multiply-adds

  std::uint64_t all() const { return fast + slow; }
  /// Returns the share of fused multiply-adds; 0 without products.
  double slow_share() const {
    return all() == 0 ? 0 : static_cast<double>(slow) / static_cast<double>(all());
  }
  friend GuardCount operator-(const GuardCount& a, const GuardCount& b) {
    return {a.fast - b.fast, a.slow - b.slow};
  }
};

/// Returns the products of this process so far, on all threads. Subtract an earlier count to get those of a
/// run. Zeros if no product ran on such a unit.
GuardCount guard_count();

/// Adds the products of a kernel's task to the process's count when the task ends. A thread has at most one
/// at a time.
class GuardTask {
 public:
  GuardTask() { count_ = {}; }
  ~GuardTask();
  GuardTask(const GuardTask&) = delete;
  GuardTask& operator=(const GuardTask&) = delete;

  /// Counts products of the calling thread's task.
  static void add(bool fast, std::uint64_t products = 1) { (fast ? count_.fast : count_.slow) += products; }

 private:
  static inline constinit thread_local GuardCount count_;
};

}  // namespace mantissa::kernels
