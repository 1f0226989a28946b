#include "mantissa/app/cli/together.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <thread>

#include "mantissa/app/cli/common.h"
#include "mantissa/app/cli/output.h"
#include "mantissa/core/base/printable.h"

#include <fmt/format.h>

namespace mantissa::cli {
namespace {

/// Standard error as it was, of a rank that prints nothing.
int true_errors = STDERR_FILENO;

std::optional<api::Ranks>& shared_ranks() {
  static std::optional<api::Ranks> of_this_command;
  return of_this_command;
}

void silence() {
  true_errors = dup(STDERR_FILENO);
  const int nowhere = open("/dev/null", O_WRONLY);
  dup2(nowhere, STDOUT_FILENO);
  dup2(nowhere, STDERR_FILENO);
  close(nowhere);
}

/// Leaves the signals of a stop to the thread that waits for them: those that start here do not get them.
class WithoutSignals {
 public:
  WithoutSignals() {
    sigset_t stopping;
    sigemptyset(&stopping);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&stopping, signal);
    pthread_sigmask(SIG_BLOCK, &stopping, &before_);
  }
  ~WithoutSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WithoutSignals(const WithoutSignals&) = delete;
  WithoutSignals& operator=(const WithoutSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

namespace {

std::optional<std::string> environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

}  // namespace

void join_ranks() {
  const WithoutSignals for_threads;
  if (!api::is_first_started(environment)) silence();  // also if they cannot join
  shared_ranks() = api::open_ranks(environment);
  if (ranks().size() > 1)
    use_color(Color::never);  // launchers give terminals to processes whose output is a pipe
}

const api::Ranks& ranks() {
  static const api::Ranks alone;
  return shared_ranks() ? *shared_ranks() : alone;
}

int leave_ranks(int code, const std::string& message, bool lost) {
  if (!shared_ranks() || ranks().size() == 1) return code;
  using Ending = api::Ranks::Ending;
  const bool failed = code != 0 && code != kInterrupted;
  const api::Ranks::Farewell farewell = ranks().leave(!failed ? Ending::done
                                                      : lost  ? Ending::lost
                                                              : Ending::failed);
  if (failed && farewell.tells && !message.empty()) {
    dup2(true_errors, STDERR_FILENO);
    const std::string place = ranks().leads() ? "" : ranks().place() + ": ";
    print_message(Message::error, fmt::format("mantissa: {}{}\n", place, printable(message)));
  }
  std::signal(SIGTERM, SIG_IGN);  // launchers end the others when the first one exits with an error
  // Another rank tells, or the launcher passes on what this one said: some drop what they have when they end.
  if (!farewell.together) std::this_thread::sleep_for(std::chrono::milliseconds(farewell.tells ? 500 : 2000));
  if (!farewell.together) ranks().end_all(code != 0 ? code : 1);
  shared_ranks().reset();  // leaves MPI
  return code;
}

}  // namespace mantissa::cli
