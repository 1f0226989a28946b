#include <cxxabi.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <typeinfo>

#include "mantissa/app/cli/common.h"
#include "mantissa/app/cli/safe_terminal.h"
#include "mantissa/core/disk/sudden_end.h"

namespace {

int failure_code = 1;  // the exit code of a sudden end

/// Ends the process with `message`, without destructors. Safe in a signal handler.
[[noreturn]] void end_suddenly(std::string_view message, int code) {
  mantissa::disk::remove_at_sudden_end();
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, message.data(), message.size());
  _exit(code);
}

/// Handles SIGBUS: a mapped model file (docs/models.md) was truncated while it was read. Nothing can be saved
/// here, and nothing needs to be: commands that map files write only at their end.
[[noreturn]] void cut_short(int /*signal*/) {
  constexpr std::string_view kMessage =
      "mantissa: a model file was truncated while it was read; run the command again once the file is "
      "complete\n";
  end_suddenly(kMessage, failure_code);
}

/// Handles an exception where none may be thrown: libraries allocate memory in destructors.
[[noreturn]] void end_without_memory() {
  static std::atomic_flag first;
  while (first.test_and_set()) pause();  // another thread says it and ends the process
  constexpr std::string_view kMemory =
      "mantissa: out of memory; free some, or use a smaller model, input or batch.micro_batch_size\n";
  constexpr std::string_view kOther =
      "mantissa: an exception where none is expected (this is a bug in the program: please report it with the "
      "command)\n";
  const std::type_info* type = abi::__cxa_current_exception_type();
  constexpr std::size_t kException = 256;  // without an exception: there may have been no memory for it
  const bool memory = type != nullptr ? *type == typeid(std::bad_alloc) : std::malloc(kException) == nullptr;
  end_suddenly(memory ? kMemory : kOther, failure_code);
}

/// Called before the objects of the program and of its libraries are made, which allocate memory too.
void set_terminate_handler() {
  std::set_terminate(end_without_memory);
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const kFirst)() = set_terminate_handler;

/// Handles SIGINT, SIGTERM and SIGHUP outside of a SignalStop. A command without one has nothing to save: it
/// prints or writes its result at the end.
[[noreturn]] void end_command(int signal) {
  const std::string_view message = signal == SIGINT ? "mantissa: ^C: the command did not finish\n"
                                                    : "mantissa: terminated: the command did not finish\n";
  end_suddenly(message, mantissa::cli::kInterrupted);
}

/// Occupies the numbers of closed standard streams, so that no file of a command takes one of them and
/// receives its text. Writes to such a stream still fail.
void occupy_standard_streams() {
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (fcntl(stream, F_GETFD) == -1 && errno == EBADF) open("/dev/null", O_RDONLY);
  }
}

/// Returns what is wrong with the limit of stacks, or "". Threads get that limit as their stack.
std::string small_stack() {
  constexpr rlim_t kKibibyte = 1024, kNeeded = 1024 * kKibibyte;
  rlimit limit{};
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= kNeeded) return "";
  return fmt::format(
      "mantissa: the stack is limited to {} KiB, and the program needs {}. Fix: ulimit -s 8192\n",
      limit.rlim_cur / kKibibyte, kNeeded / kKibibyte);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && argv[1] == std::string_view("diff")) failure_code = 2;  // 1 is a result
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the file-size limit then fails with an error message
  std::signal(SIGTERM, end_command);
  // nohup lets a command ignore the end of its terminal.
  if (std::signal(SIGHUP, end_command) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
  // A shell ignores SIGINT for its background commands.
  if (std::signal(SIGINT, end_command) == SIG_IGN) std::signal(SIGINT, SIG_IGN);
  std::signal(SIGBUS, cut_short);
  occupy_standard_streams();
  if (const std::string message = small_stack(); !message.empty()) end_suddenly(message, failure_code);
  mantissa::cli::guard_terminal();
  return mantissa::cli::run_command_line(argc, argv);
}
