// The threads that wait for clients: one for each connection, up to a limit.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace mantissa::serve {

class ConnectionThreads {
 public:
  /// Starts at most `most` threads. `serve` takes the socket of a client, and closes it.
  ConnectionThreads(std::size_t most, std::function<void(int socket)> serve);
  /// Waits for all clients that were taken.
  ~ConnectionThreads();
  ConnectionThreads(const ConnectionThreads&) = delete;
  ConnectionThreads& operator=(const ConnectionThreads&) = delete;

  /// Passes a client to a thread. Returns false, and leaves the socket to the caller, if all are busy and no
  /// other can be started.
  bool take(int socket);

 private:
  void run();
  bool add_thread();

  std::size_t most_;
  std::function<void(int socket)> serve_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<int> sockets_;  // of clients that no thread has begun with
  std::size_t idle_ = 0;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mantissa::serve
