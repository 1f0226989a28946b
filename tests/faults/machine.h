// Runs the program on a machine that breaks: with a fault of the shim, and with a limit of time.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "app/api/tiny.h"
#include "faults/shim/shim.h"

namespace mantissa::faults {

namespace fs = std::filesystem;
using testing::has;
using testing::read_all;

/// One fault of the shim, as its variables.
struct Fault {
  std::string calls = {};  // groups; empty: none
  std::int64_t at = 0;     // 0: the calls are only counted
  std::string does = "EIO";
  bool lasting = false;
  std::int64_t disk = -1;      // bytes that can be written; -1: any number
  bool plain_renames = false;  // the file system cannot exchange two names
  int pause = 100;             // milliseconds
  std::string under = {};      // only calls on this file or folder of `work`; empty: all of it
  fs::path journal = {};       // file that receives the journal; empty: none
  std::string limits = {};     // a command that starts the program, such as `prlimit --nofile=20`
};

/// How the program ended.
struct Ran {
  int code = -1;
  int signal = 0;
  bool hung = false;  // it ran for longer than kHang, and was killed
  std::string out, err;
  Counts counts;
  std::string command;  // to run it again by hand

  std::string fault() const { return counts.faults == 0 ? "no fault" : std::string(counts.first.data()); }
};

inline constexpr std::chrono::seconds kHang{20};

/// Puts the folders of tests into memory if the machine has such a file system: there fsync() costs nothing.
struct FoldersInMemory {
  FoldersInMemory() {
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
  }
};

/// A folder `work` for the program, and files of the test beside it.
class Machine : FoldersInMemory {
 public:
  Machine() {
    // The shim compares paths as the kernel gives them.
    root_ = fs::canonical(folder_.path());
    fs::create_directory(work());
  }
  fs::path work() const { return root_ / "work"; }
  fs::path root() const { return root_; }

  /// Starts the program in `work`; `err` and `out` go to files named by `tag`. `arguments` may redirect.
  pid_t start(const std::string& arguments, const Fault& fault = {}, const std::string& tag = "") const {
    const std::string line = script(arguments, fault, tag);
    const pid_t child = fork();
    if (child == 0) {
      setpgid(0, 0);
      std::signal(SIGINT, SIG_DFL);
      std::signal(SIGHUP, SIG_DFL);
      execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
      _exit(127);
    }
    setpgid(child, child);
    return child;
  }

  /// Waits for a process that start() gave.
  Ran wait(pid_t child, const std::string& arguments, const Fault& fault = {},
           const std::string& tag = "") const {
    Ran ran;
    const auto end = std::chrono::steady_clock::now() + kHang;
    int status = 0;
    for (auto pause = std::chrono::microseconds(500); waitpid(child, &status, WNOHANG) == 0;
         pause = std::min(2 * pause, std::chrono::microseconds(8000))) {
      if (!ran.hung && std::chrono::steady_clock::now() > end) {
        ran.hung = true;
        kill(-child, SIGKILL);
      }
      std::this_thread::sleep_for(pause);
    }
    kill(-child, SIGKILL);  // a reward program that outlived it
    ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    ran.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    ran.out = read_all(file("out", tag));
    ran.err = read_all(file("err", tag));
    const std::string counts = read_all(file("counts", tag));
    if (counts.size() == sizeof(Counts)) std::memcpy(&ran.counts, counts.data(), sizeof(Counts));
    ran.command = script(arguments, fault, tag);
    return ran;
  }

  Ran run(const std::string& arguments, const Fault& fault = {}, const std::string& tag = "") const {
    return wait(start(arguments, fault, tag), arguments, fault, tag);
  }

 private:
  fs::path file(const std::string& name, const std::string& tag) const { return root_ / (name + tag); }

  std::string script(const std::string& arguments, const Fault& fault, const std::string& tag) const {
    std::string variables = "LD_PRELOAD=" MANTISSA_FAULT_SHIM " MANTISSA_FAULT_UNDER=" +
                            (fault.under.empty() ? work() : work() / fault.under).string();
    variables += " MANTISSA_FAULT_COUNTS=" + file("counts", tag).string();
    if (!fault.calls.empty())
      variables += fmt::format(" MANTISSA_FAULT_CALLS={} MANTISSA_FAULT_AT={} MANTISSA_FAULT_DOES={}",
                               fault.calls, fault.at, fault.does);
    if (fault.does == "pause") variables += fmt::format(" MANTISSA_FAULT_PAUSE={}", fault.pause);
    if (fault.plain_renames) variables += " MANTISSA_FAULT_PLAIN_RENAMES=1";
    if (fault.lasting) variables += " MANTISSA_FAULT_LASTING=1";
    if (fault.disk >= 0) variables += fmt::format(" MANTISSA_FAULT_DISK={}", fault.disk);
    if (!fault.journal.empty()) variables += " MANTISSA_FAULT_JOURNAL=" + fault.journal.string();
    return fmt::format("cd {} && exec {} env {} {} {} > {} 2> {}", work().string(), fault.limits, variables,
                       program(), arguments, file("out", tag).string(), file("err", tag).string());
  }

  static std::string program() {
    const char* other = std::getenv("MANTISSA_FAULTS_PROGRAM");
    return other == nullptr ? MANTISSA_BINARY_DIR "/mantissa" : other;
  }

  testing::TemporaryFolder folder_;
  fs::path root_;
};

/// Returns the number of error messages.
inline int messages(std::string_view err) {
  int count = 0;
  for (std::size_t at = 0; at != std::string_view::npos && at < err.size();) {
    if (err.substr(at).starts_with("mantissa: ")) ++count;
    at = err.find('\n', at);
    if (at != std::string_view::npos) ++at;
  }
  return count;
}

/// Says what is wrong with the end of a program that met a fault; empty if nothing is. `quiet_signal` is a
/// signal by which it may have ended.
inline std::string complaint(const Ran& ran, int quiet_signal = 0) {
  if (ran.hung) return "it hung";
  if (ran.signal != 0 && ran.signal == quiet_signal) return "";
  if (ran.signal != 0) return fmt::format("it ended by signal {}: {}", ran.signal, strsignal(ran.signal));
  if (ran.code > 128 && ran.code != 130) return fmt::format("it ended with code {}", ran.code);
  if (has(ran.err, "bug in the program")) return "it calls the fault a bug in the program";
  if (ran.code == 0) return "";
  if (ran.code != 1 && ran.code != 2 && ran.code != 130) return fmt::format("exit code {}", ran.code);
  const int count = messages(ran.err);
  const bool is_quiet = ran.code == 130 && count == 0;  // it saved its state, as it was asked to
  return count == 1 || is_quiet ? "" : fmt::format("{} messages", count);
}

/// The number that MANTISSA_FAULTS_SEED gives, so that a campaign can have other points; 1 by default.
inline unsigned seed() {
  const char* text = std::getenv("MANTISSA_FAULTS_SEED");
  return text == nullptr ? 1 : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

}  // namespace mantissa::faults
