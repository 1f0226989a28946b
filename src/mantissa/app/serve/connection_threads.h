// The threads that wait for clients: one for each connection, up to a limit.
#pragma once

#include <httplib.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace mantissa::serve {

class ConnectionThreads : public httplib::TaskQueue {
 public:
  /// Starts at most `most` threads. When all are busy, the accepting thread passes the job to `refuse`, which
  /// closes its connection.
  ConnectionThreads(std::size_t most, std::function<void(const std::function<void()>&)> refuse);
  ~ConnectionThreads() override;

  void enqueue(std::function<void()> job) override;
  /// Waits for all jobs.
  void shutdown() override;

 private:
  void run();
  bool add_thread();

  std::size_t most_;
  std::function<void(const std::function<void()>&)> refuse_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::size_t idle_ = 0;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mantissa::serve
