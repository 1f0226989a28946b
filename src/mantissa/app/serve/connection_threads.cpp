#include "mantissa/app/serve/connection_threads.h"

#include <exception>
#include <new>
#include <system_error>
#include <utility>

namespace mantissa::serve {

ConnectionThreads::ConnectionThreads(std::size_t most, std::function<void(int socket)> serve)
    : most_(most), serve_(std::move(serve)) {}

ConnectionThreads::~ConnectionThreads() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  for (std::thread& thread : threads_) thread.join();
}

bool ConnectionThreads::take(int socket) {
  const std::lock_guard lock(mutex_);
  try {
    if (sockets_.size() >= idle_ && !add_thread()) return false;
    sockets_.push_back(socket);
  } catch (const std::bad_alloc&) {
    return false;
  }
  changed_.notify_one();
  return true;
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
    changed_.wait(lock, [&] { return over_ || !sockets_.empty(); });
    if (sockets_.empty()) return;
    const int socket = sockets_.front();
    sockets_.pop_front();
    --idle_;
    lock.unlock();
    try {
      serve_(socket);
    } catch (const std::exception&) {  // out of memory: this client's connection is closed
    }
    lock.lock();
    ++idle_;
  }
}

}  // namespace mantissa::serve
