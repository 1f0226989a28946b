// Signals that would end a command before it has stored its results: Ctrl-C, SIGTERM and the end of the
// terminal (SIGHUP) as a stop token, and SIGPIPE as an error.
#pragma once

#include <atomic>
#include <stop_token>
#include <thread>

namespace mantissa::cli {

/// While an object exists, the first SIGINT, SIGTERM or SIGHUP requests a stop of its token, and a second one
/// ends the process. Create it before any other thread, so that all threads leave the signals to it.
class SignalStop {
 public:
  SignalStop();
  ~SignalStop();
  SignalStop(const SignalStop&) = delete;
  SignalStop& operator=(const SignalStop&) = delete;

  std::stop_token token() const { return stop_.get_token(); }
  /// Returns the signal that requested the stop, such as "^C" or "terminated", or that another rank got one.
  const char* reason() const;

 private:
  std::stop_source stop_;
  std::atomic<int> signal_ = 0;  // the signal that requested the stop
  std::jthread waiter_;
};

/// While an object exists, output into a closed pipe is an error instead of the end of the process.
class PipeErrors {
 public:
  PipeErrors();
  ~PipeErrors();
  PipeErrors(const PipeErrors&) = delete;
  PipeErrors& operator=(const PipeErrors&) = delete;

 private:
  void (*before_)(int);
};

}  // namespace mantissa::cli
