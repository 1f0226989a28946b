#include "mantissa/app/cli/signal_stop.h"

#include <pthread.h>

#include <csignal>

namespace mantissa::cli {
namespace {

sigset_t stopping_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  struct sigaction hangup {};
  // nohup lets a command ignore the end of its terminal.
  if (::sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN) sigaddset(&set, SIGHUP);
  return set;
}

}  // namespace

SignalStop::SignalStop() {
  const sigset_t set = stopping_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  waiter_ = std::jthread([this, stop = stop_](const std::stop_token& over) mutable {
    const sigset_t signals = stopping_signals();
    for (int signal = 0; sigwait(&signals, &signal) == 0;) {
      if (over.stop_requested()) return;
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
  switch (signal_) {
    case 0:
      return "another rank was stopped";
    case SIGINT:
      return "^C";
    case SIGHUP:
      return "the terminal was closed";
    default:
      return "terminated";
  }
}

SignalStop::~SignalStop() {
  waiter_.request_stop();
  pthread_kill(waiter_.native_handle(), SIGTERM);  // wakes it
  waiter_.join();
  const sigset_t set = stopping_signals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

PipeErrors::PipeErrors() : before_(std::signal(SIGPIPE, SIG_IGN)) {}

PipeErrors::~PipeErrors() {
  std::signal(SIGPIPE, before_);
}

}  // namespace mantissa::cli
