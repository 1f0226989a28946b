#include "mantissa/app/serve/connection_threads.h"

#include <system_error>
#include <utility>

namespace mantissa::serve {

ConnectionThreads::ConnectionThreads(std::size_t most,
                                     std::function<void(const std::function<void()>&)> refuse)
    : most_(most), refuse_(std::move(refuse)) {}

ConnectionThreads::~ConnectionThreads() {
  shutdown();
}

void ConnectionThreads::enqueue(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    if (jobs_.size() < idle_ || add_thread()) {
      jobs_.push_back(std::move(job));
      changed_.notify_one();
      return;
    }
  }
  refuse_(job);
}

bool ConnectionThreads::add_thread() {
  if (threads_.size() >= most_) return false;
  try {
    threads_.emplace_back([this] { run(); });
    ++idle_;
    return true;
  } catch (const std::system_error&) {  // a limit of this process
    return false;
  }
}

void ConnectionThreads::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return over_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    --idle_;
    lock.unlock();
    job();
    lock.lock();
    ++idle_;
  }
}

void ConnectionThreads::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace mantissa::serve
