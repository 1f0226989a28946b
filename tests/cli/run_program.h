// Runs the program like a script, in a folder for the test.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "api/tiny.h"

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

inline void write(const std::filesystem::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

}  // namespace mantissa::testing
