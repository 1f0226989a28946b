#include "mantissa/kernels/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/kernels/context.h"

namespace mantissa::kernels {
namespace {

/// How long a thread polls before it sleeps. Between the products of a generated token lie serial steps of 20
/// to 60 microseconds; a sleep and a wake-up there made generation an eighth slower on a virtual machine.
constexpr std::chrono::microseconds kPoll{100};

/// The most bytes that a waiting thread loads: half of a small second-level cache.
constexpr std::size_t kMostAhead = std::size_t{1} << 18;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  try {
    for (int t = 1; t < threads; ++t) workers_.emplace_back([this, t] { work(t); });
  } catch (const std::system_error& e) {
    const std::size_t started = workers_.size();
    stop_ = true;
    loop_.fetch_add(1);
    loop_.notify_all();
    for (std::thread& w : workers_) w.join();
    throw ResourceError("threads: the system started {} of {} ({}). Fix: a smaller --threads", started + 1,
                        threads, e.what());
  }
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  loop_.fetch_add(1, std::memory_order_release);
  loop_.notify_all();
  for (std::thread& w : workers_) w.join();
}

void ThreadPool::prefetch_while_waiting(std::span<const std::byte> memory) {
  const std::scoped_lock lock(one_loop_);
  after_loop_ = memory;
}

ThreadPool::Ahead ThreadPool::beginning_of_share(int thread) const {
  const std::span<const std::byte> share = share_of(after_loop_, threads(), thread);
  const auto at = reinterpret_cast<std::uintptr_t>(share.data());
  return {at, at + std::min(share.size(), kMostAhead)};
}

void ThreadPool::prefetch_some(Ahead& ahead) {
  constexpr std::size_t kLine = 64, kLines = 8;
  for (std::size_t i = 0; i < kLines && ahead.at < ahead.end; ++i, ahead.at += kLine)
    __builtin_prefetch(reinterpret_cast<const void*>(ahead.at), 0, 2);
  pause();
}

/// Returns when `value` differs from `old`.
void ThreadPool::wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old, Ahead& ahead) {
  const auto deadline = std::chrono::steady_clock::now() + kPoll;
  while (value.load(std::memory_order_acquire) == old) {
    if (std::chrono::steady_clock::now() < deadline) {
      prefetch_some(ahead);
    } else {
      value.wait(old, std::memory_order_acquire);
    }
  }
}

void ThreadPool::deal(int thread) {
  try {
    for (std::int64_t i = next_.fetch_add(1, std::memory_order_relaxed); i < count_;
         i = next_.fetch_add(1, std::memory_order_relaxed)) {
      (*body_)(i, thread);
    }
  } catch (...) {
    next_.store(count_, std::memory_order_relaxed);  // no other call begins
    const std::lock_guard lock(failing_);
    if (failure_ == nullptr) failure_ = std::current_exception();
  }
}

void ThreadPool::work(int thread) {
  std::uint32_t seen = 0;
  Ahead ahead;
  for (;;) {
    wait_for_change(loop_, seen, ahead);
    seen = loop_.load(std::memory_order_acquire);
    if (stop_) return;
    if (!join()) continue;
    if (!after_loop_.empty()) ahead = beginning_of_share(thread);
    deal(thread);
    if (working_.fetch_sub(1, std::memory_order_acq_rel) == 1) working_.notify_one();
  }
}

/// Takes part in the current loop. Returns false if it has ended.
bool ThreadPool::join() {
  std::uint32_t working = working_.load(std::memory_order_relaxed);
  while ((working & kOpen) != 0) {
    if (working_.compare_exchange_weak(working, working + 1, std::memory_order_acq_rel)) return true;
  }
  return false;
}

void ThreadPool::run(std::int64_t count, const std::function<void(std::int64_t, int)>& body) {
  const std::scoped_lock lock(one_loop_);
  body_ = &body;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  working_.store(kOpen, std::memory_order_release);
  loop_.fetch_add(1, std::memory_order_release);
  loop_.notify_all();
  deal(0);
  working_.fetch_and(~kOpen, std::memory_order_acq_rel);
  Ahead ahead = after_loop_.empty() ? Ahead() : beginning_of_share(0);
  for (std::uint32_t left = working_.load(std::memory_order_acquire); left != 0;
       left = working_.load(std::memory_order_acquire)) {
    wait_for_change(working_, left, ahead);
  }
  after_loop_ = {};
  if (failure_ != nullptr) std::rethrow_exception(std::exchange(failure_, nullptr));
}

}  // namespace mantissa::kernels
