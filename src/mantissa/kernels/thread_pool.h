// Threads that wait for kernels' loops. They poll for a few microseconds after a loop, because the next one
// usually follows at once, and then sleep: a machine that others use too loses nothing to waiting threads.
// (The usual OpenMP runtimes poll for milliseconds, which made a step five times slower beside another
// process.)
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace mantissa::kernels {

class ThreadPool {
 public:
  /// `threads` in all, the caller's included. Throws ResourceError where the system refuses one.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(index, thread) for index in [0, count), dealt one by one; the caller works too. Returns when
  /// all are done. One loop at a time: loops of several callers follow each other. The body must not throw
  /// and must not start a loop.
  void run(std::int64_t count, const std::function<void(std::int64_t, int)>& body);

 private:
  void work(int thread);
  void deal(int thread);

  std::mutex one_loop_;
  const std::function<void(std::int64_t, int)>* body_ = nullptr;
  std::int64_t count_ = 0;
  std::atomic<std::int64_t> next_{0};      // index to deal
  std::atomic<std::uint32_t> loop_{0};     // counts loops; workers wait for it to move
  std::atomic<std::uint32_t> working_{0};  // workers that have not finished the loop
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace mantissa::kernels
