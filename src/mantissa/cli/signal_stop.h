// Ctrl-C and SIGTERM as a stop token.
#pragma once

#include <atomic>
#include <stop_token>
#include <thread>

namespace mantissa::cli {

/// While an object exists, the first SIGINT or SIGTERM requests a stop of its token, and a second one ends
/// the process. Create it before any other thread, so that all threads leave the signals to it.
class SignalStop {
 public:
  SignalStop();
  ~SignalStop();
  SignalStop(const SignalStop&) = delete;
  SignalStop& operator=(const SignalStop&) = delete;

  std::stop_token token() const { return stop_.get_token(); }
  /// Returns the signal that requested the stop, "^C" or "terminated", or "" before.
  const char* reason() const;

 private:
  std::stop_source stop_;
  std::atomic<int> signal_ = 0;  // the signal that requested the stop
  std::jthread waiter_;
};

}  // namespace mantissa::cli
