#include "mantissa/text/reward/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>
#include <vector>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/disk/file.h"

namespace mantissa::reward {
namespace {

using namespace std::chrono_literals;

[[noreturn]] void cannot_start(int error) {
  const char* cure = error == EMFILE || error == ENFILE ? "raise the limit of open files (ulimit -n)"
                     : error == EAGAIN                  ? "raise the limit of processes (ulimit -u)"
                     : error == ENOMEM                  ? "free some memory"
                                                        : "check that /bin/sh can run it";
  throw ResourceError("cannot start the reward program of rl.reward: {}; {}",
                      std::generic_category().message(error), cure);
}

struct Pipe {
  Descriptor read, write;
};

/// Returns a pipe that no other child inherits, with numbers above those of standard input, output and error,
/// which may be closed here.
Pipe make_pipe() {
  constexpr int kFirst = 3;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) cannot_start(errno);
  Pipe pipe{Descriptor(ends[0]), Descriptor(ends[1])};
  for (Descriptor* end : {&pipe.read, &pipe.write}) {
    if (end->number() >= kFirst) continue;
    const int other = ::fcntl(end->number(), F_DUPFD_CLOEXEC, kFirst);
    if (other < 0) cannot_start(errno);
    *end = Descriptor(other);
  }
  return pipe;
}

void make_nonblocking(const Descriptor& end) {
  const int flags = ::fcntl(end.number(), F_GETFL);
  if (flags < 0 || ::fcntl(end.number(), F_SETFL, flags | O_NONBLOCK) != 0) cannot_start(errno);
}

/// What posix_spawn() does in the child before the shell starts: the pipes become its standard streams, it
/// leads a group, and signals have their defaults, whatever this process blocks or ignores.
class SpawnPlan {
 public:
  SpawnPlan(int input, int output, int errors) {
    check(posix_spawn_file_actions_init(&actions_));
    check(posix_spawnattr_init(&attributes_));
    check(posix_spawn_file_actions_adddup2(&actions_, input, STDIN_FILENO));
    check(posix_spawn_file_actions_adddup2(&actions_, output, STDOUT_FILENO));
    check(posix_spawn_file_actions_adddup2(&actions_, errors, STDERR_FILENO));
#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 34)
    check(posix_spawn_file_actions_addclosefrom_np(&actions_, STDERR_FILENO + 1));
#endif
    sigset_t all, none;
    sigfillset(&all);
    sigemptyset(&none);
    check(posix_spawnattr_setsigdefault(&attributes_, &all));
    check(posix_spawnattr_setsigmask(&attributes_, &none));
    check(posix_spawnattr_setpgroup(&attributes_, 0));
    check(posix_spawnattr_setflags(&attributes_,
                                   POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK));
  }
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;

  pid_t shell(const std::string& command, char** environment) const {
    std::string shell = "sh", option = "-c", text = command;
    std::array<char*, 4> arguments = {shell.data(), option.data(), text.data(), nullptr};
    pid_t process = -1;
    check(::posix_spawn(&process, "/bin/sh", &actions_, &attributes_, arguments.data(), environment));
    return process;
  }

 private:
  static void check(int error) {
    if (error != 0) cannot_start(error);
  }
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

/// Blocks SIGPIPE in this thread, and takes back the one that a write has raised.
class NoBrokenPipe {
 public:
  NoBrokenPipe() {
    sigset_t pending;
    sigemptyset(&set_);
    sigaddset(&set_, SIGPIPE);
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~NoBrokenPipe() {
    constexpr timespec kNow = {0, 0};
    if (!was_pending_) {
      while (sigtimedwait(&set_, nullptr, &kNow) < 0 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipe(const NoBrokenPipe&) = delete;
  NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;

 private:
  sigset_t set_{}, before_{};
  bool was_pending_ = false;
};

std::string signal_name(int signal) {
  const char* text = ::strsignal(signal);
  return text == nullptr ? fmt::format("signal {}", signal) : fmt::format("signal {} ({})", signal, text);
}

std::string exit_text(int status) {
  constexpr int kNotExecutable = 126, kNotFound = 127, kSignals = 128;  // of the shell
  std::string text = fmt::format("exited with status {}", status);
  if (status == kNotFound) text += ", with which a shell reports that it finds no such command";
  if (status == kNotExecutable) text += ", with which a shell reports that the file cannot be executed";
  if (status > kSignals && status < kSignals + NSIG)
    text += fmt::format(", with which a shell reports {}", signal_name(status - kSignals));
  return text;
}

}  // namespace

void Descriptor::close() {
  if (number_ >= 0) ::close(number_);
  number_ = -1;
}

Child::Child(const std::string& command, const std::string& variable) {
  Pipe input = make_pipe(), output = make_pipe(), errors = make_pipe();
  const std::string_view name = std::string_view(variable).substr(0, variable.find('=') + 1);
  std::string added = variable;
  std::vector<char*> environment;
  for (char** v = environ; v != nullptr && *v != nullptr; ++v) {
    if (!std::string_view(*v).starts_with(name)) environment.push_back(*v);
  }
  environment.push_back(added.data());
  environment.push_back(nullptr);
  make_nonblocking(input.write);
  make_nonblocking(output.read);
  make_nonblocking(errors.read);
  const SpawnPlan plan(input.read.number(), output.write.number(), errors.write.number());
  process_ = plan.shell(command, environment.data());
  input_ = std::move(input.write);
  output_ = std::move(output.read);
  errors_ = std::move(errors.read);
}

Child::~Child() {
  end({});
}

std::size_t Child::write(std::string_view text) {
  if (!input_.open()) return 0;
  const NoBrokenPipe quiet;
  const ssize_t count =
      disk::uninterrupted([&] { return ::write(input_.number(), text.data(), text.size()); });
  if (count >= 0) return static_cast<std::size_t>(count);
  if (errno != EAGAIN) input_.close();
  return 0;
}

void Child::read(Descriptor& end, std::string& text) {
  std::array<char, 1 << 16> bytes;
  if (!end.open()) return;
  const ssize_t count = disk::uninterrupted([&] { return ::read(end.number(), bytes.data(), bytes.size()); });
  if (count > 0) text.append(bytes.data(), static_cast<std::size_t>(count));
  if (count == 0 || (count < 0 && errno != EAGAIN)) end.close();
}

void Child::wait(bool writes, std::chrono::milliseconds time) const {
  std::array<pollfd, 3> ends = {pollfd{output_.number(), POLLIN, 0}, pollfd{errors_.number(), POLLIN, 0},
                                pollfd{writes ? input_.number() : -1, POLLOUT, 0}};
  ::poll(ends.data(), ends.size(), static_cast<int>(time.count()));
}

std::optional<std::string> Child::ended() const {
  siginfo_t info{};
  // The process stays a zombie, so that its number names its group until end().
  if (process_ < 0 || ::waitid(P_PID, static_cast<id_t>(process_), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
    return "has ended";
  if (info.si_pid == 0) return std::nullopt;
  return info.si_code == CLD_EXITED ? exit_text(info.si_status)
                                    : "was ended by " + signal_name(info.si_status);
}

bool Child::drain(std::chrono::milliseconds time, std::string& output) {
  constexpr auto kLook = 20ms;
  constexpr std::size_t kMost = 1 << 16;
  const auto until = std::chrono::steady_clock::now() + time;
  for (;;) {
    const bool over = std::chrono::steady_clock::now() >= until;
    const bool end = ended().has_value();  // before reading, so that nothing is missed
    std::string text, errors;
    read_output(text);
    read_errors(errors);
    if (output.size() < kMost) output += text;
    const bool more = !text.empty() || !errors.empty();
    if (over || (end && !more)) return end;
    if (!more) wait(false, kLook);
  }
}

std::string Child::end(std::chrono::milliseconds patience) {
  std::string output;
  if (process_ < 0) return output;
  input_.close();
  if (!drain(patience, output)) {
    ::kill(-process_, SIGTERM);
    drain(1s, output);
  }
  ::kill(-process_, SIGKILL);
  disk::uninterrupted([&] { return ::waitpid(process_, nullptr, 0); });
  process_ = -1;
  return output;
}

}  // namespace mantissa::reward
