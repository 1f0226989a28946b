// Runs the program like a script, in a folder for the test.
#pragma once

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "app/api/tiny.h"
#include "mantissa/files/io/safetensors.h"

namespace mantissa::testing {

struct Result {
  int code = -1;
  std::string out, err;
};

/// Runs a shell command in the folder.
inline Result shell(const TemporaryFolder& folder, const std::string& line) {
  const std::string out = (folder / "out").string(), err = (folder / "err").string();
  const std::string command = "cd " + folder.path().string() + " && " + line + " > " + out + " 2> " + err;
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), read_all(out), read_all(err)};
}

inline Result mantissa(const TemporaryFolder& folder, const std::string& arguments) {
  return shell(folder, MANTISSA_BINARY_DIR "/mantissa " + arguments);
}

/// Starts the program in the folder as a child of the test's own; what it prints goes to the files `out` and
/// `err` there.
inline pid_t start(const TemporaryFolder& folder, const std::string& arguments) {
  const std::string command = "cd " + folder.path().string() + " && exec " MANTISSA_BINARY_DIR "/mantissa " +
                              arguments + " > out 2> err";
  const pid_t child = fork();
  if (child == 0) {
    std::signal(SIGINT, SIG_DFL);  // a shell may have started the test with SIGINT ignored
    execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    _exit(127);
  }
  return child;
}

struct Ended {
  int status = 0;              // as waitpid gives it
  std::size_t peak_bytes = 0;  // resident at once, as the kernel counted them for the process
};

inline Ended wait_for(pid_t child) {
  int status = 0;
  rusage usage{};
  while (wait4(child, &status, 0, &usage) == -1 && errno == EINTR) {
  }
  return {status, static_cast<std::size_t>(usage.ru_maxrss) * 1024};
}

/// Returns whether a child that start() gave is still running; it is left to wait_for() where it is not.
inline bool runs(pid_t child) {
  siginfo_t info{};
  return waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid == 0;
}

inline void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

/// Writes run.toml, a tiny run of `steps` steps under `policy`, and trains it to the folder `r`.
inline Result train_tiny(const TemporaryFolder& folder, int steps, const std::string& policy) {
  write(folder / "run.toml", tiny_config(steps, policy));
  return mantissa(folder, "train run.toml --out r --quiet");
}

/// Writes the file `ids`, one row for `trace --tokens`: the bytes of "Hello".
inline void write_ids(const TemporaryFolder& folder) {
  const std::vector<std::int32_t> ids = {72, 101, 108, 108, 111};
  io::write_safetensors(folder / "ids",
                        std::vector{io::TensorToWrite{
                            "input_ids", io::Dtype::i32, {1, 5}, std::as_bytes(std::span(ids)), nullptr}});
}

}  // namespace mantissa::testing
