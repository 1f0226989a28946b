// Threads that run kernels' loops. After a loop they poll for a tenth of a millisecond, because the next loop
// usually follows at once, and then sleep, so idle threads cost nothing on a shared machine. (Common OpenMP
// runtimes poll for milliseconds, which made a step five times slower next to another process.) A loop does
// not wait for a thread that the system has not run by its end: other threads then take its indices.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace mantissa::kernels {

class ThreadPool {
 public:
  /// `threads` counts the caller. Throws ResourceError if the system cannot start a thread.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(index, thread) for index in [0, count), handed out one by one; the caller takes part. Returns
  /// when all calls are done. Loops of several callers run one after the other. The first exception of a call
  /// ends the loop, and is thrown once all running calls are done. The body must not start a loop.
  void run(std::int64_t count, const std::function<void(std::int64_t, int)>& body);

  /// Sets the memory that a later loop reads in equal shares, in the order of the threads. After the next
  /// loop, threads that wait load the beginnings of their shares into their caches.
  void prefetch_while_waiting(std::span<const std::byte> memory);

 private:
  static constexpr std::uint32_t kOpen = std::uint32_t{1} << 31;
  void work(int thread);
  bool join();
  void deal(int thread);
  /// The addresses that a thread has still to load.
  struct Ahead {
    std::uintptr_t at = 0, end = 0;
  };
  Ahead beginning_of_share(int thread) const;
  static void prefetch_some(Ahead& ahead);
  static void wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old, Ahead& ahead);

  std::mutex one_loop_;
  const std::function<void(std::int64_t, int)>* body_ = nullptr;
  std::int64_t count_ = 0;
  std::atomic<std::int64_t> next_{0};      // next index to hand out
  std::atomic<std::uint32_t> loop_{0};     // counts loops; workers wait for it to change
  std::atomic<std::uint32_t> working_{0};  // workers in the loop, and kOpen while more may join
  std::atomic<bool> stop_{false};
  std::mutex failing_;
  std::exception_ptr failure_;             // the first of the current loop
  std::span<const std::byte> after_loop_;  // what threads load once they have finished the loop
  std::vector<std::thread> workers_;
};

}  // namespace mantissa::kernels
