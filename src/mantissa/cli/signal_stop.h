// Ctrl-C and SIGTERM as a stop token.
#pragma once

#include <atomic>
#include <stop_token>
#include <thread>

namespace mantissa::cli {

/// While it lives, the first SIGINT or SIGTERM asks its token to stop; a second one ends the process as
/// usual. Made before any other thread, so that all of them leave the signals to it.
class SignalStop {
 public:
  SignalStop();
  ~SignalStop();
  SignalStop(const SignalStop&) = delete;
  SignalStop& operator=(const SignalStop&) = delete;

  std::stop_token token() const { return stop_.get_token(); }
  /// What asked to stop: "^C" or "terminated"; empty before.
  const char* reason() const;

 private:
  std::stop_source stop_;
  std::atomic<int> signal_ = 0;  // that asked to stop
  std::jthread waiter_;
};

}  // namespace mantissa::cli
