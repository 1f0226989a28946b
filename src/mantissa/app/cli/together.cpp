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
  // Never destroyed: MPI may end the process on the thread that a destructor would wait for.
  static auto& of_this_command = *new std::optional<api::Ranks>;
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

void end_lost(const RankLost& e);

std::optional<std::string> environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

}  // namespace

void join_ranks() {
  const WithoutSignals for_threads;
  if (!api::is_first_started(environment)) silence();  // also if they cannot join
  shared_ranks() = api::open_ranks(environment);
  ranks().on_lost(end_lost);
  // Launchers give terminals to processes whose output is a pipe.
  if (ranks().size() > 1) use_color(Color::never);
}

const api::Ranks& ranks() {
  static const api::Ranks alone;
  return shared_ranks() ? *shared_ranks() : alone;
}

namespace {

/// Prints the message of a rank, also of one that prints nothing else.
void tell_error(const std::string& message) {
  dup2(true_errors, STDERR_FILENO);
  const std::string place = ranks().leads() ? "" : ranks().place() + ": ";
  print_message(Message::error, fmt::format("mantissa: {}{}\n", place, printable(message)));
}

/// Ends all ranks. Another one tells why, or the launcher passes on what this one said: some drop what they
/// have when they end.
void end_all(const api::Ranks::Farewell& farewell, int code) {
  std::this_thread::sleep_for(std::chrono::milliseconds(farewell.tells ? 500 : 2000));
  ranks().end_all(code);
}

/// Ends this process after another rank was lost.
void end_lost(const RankLost& e) {
  constexpr int kLost = 1;
  const api::Ranks::Farewell farewell = ranks().leave(api::Ranks::Ending::lost);
  if (farewell.tells) tell_error(farewell.hanging.empty() ? e.what() : farewell.hanging);
  std::signal(SIGTERM, SIG_IGN);
  if (!farewell.together) end_all(farewell, kLost);
  ranks().disconnect();
  _exit(farewell.tells ? kLost : 0);  // the rank that tells has the code of all
}

}  // namespace

int leave_ranks(int code, const std::string& message, bool lost) {
  if (!shared_ranks() || ranks().size() == 1) return code;
  using Ending = api::Ranks::Ending;
  const bool failed = code != 0 && code != kInterrupted;
  const api::Ranks::Farewell farewell = ranks().leave(!failed ? Ending::done
                                                      : lost  ? Ending::lost
                                                              : Ending::failed);
  if (failed && farewell.tells && !message.empty())
    tell_error(farewell.hanging.empty() ? message : farewell.hanging);
  std::signal(SIGTERM, SIG_IGN);  // launchers end the others when the first one exits with an error
  if (!farewell.together) end_all(farewell, code != 0 ? code : 1);
  shared_ranks().reset();                       // leaves MPI
  return farewell.tells || !failed ? code : 0;  // the rank that tells has the code of all
}

}  // namespace mantissa::cli
