#include "mantissa/cli/signal_stop.h"

#include <pthread.h>

#include <csignal>
#include <ctime>

namespace mantissa::cli {
namespace {

sigset_t stopping_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

}  // namespace

SignalStop::SignalStop() {
  const sigset_t set = stopping_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  waiter_ = std::jthread([this, stop = stop_](const std::stop_token& over) mutable {
    const sigset_t signals = stopping_signals();
    constexpr timespec kLook = {0, 100'000'000};
    while (!over.stop_requested()) {
      const int signal = sigtimedwait(&signals, nullptr, &kLook);
      if (signal < 0) continue;
      if (stop.stop_requested()) {
        std::signal(signal, SIG_DFL);
        pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
        std::raise(signal);
      }
      signal_ = signal;
      stop.request_stop();
    }
  });
}

const char* SignalStop::reason() const {
  return signal_ == 0 ? "" : signal_ == SIGINT ? "^C" : "terminated";
}

SignalStop::~SignalStop() {
  waiter_.request_stop();
  waiter_.join();
  const sigset_t set = stopping_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace mantissa::cli
