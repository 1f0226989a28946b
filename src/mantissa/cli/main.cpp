#include <unistd.h>

#include <csignal>
#include <string_view>

#include "mantissa/cli/common.h"

namespace {

/// Handles SIGBUS: a mapped model file (docs/models.md) was truncated while it was read. Nothing can be saved
/// here, and nothing needs to be: commands that map files write only at their end.
void cut_short(int /*signal*/) {
  constexpr std::string_view kMessage =
      "mantissa: a model file was truncated while it was read; run the command again once the file is "
      "complete\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  _exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond the file-size limit then fails with an error message
  std::signal(SIGBUS, cut_short);
  return mantissa::cli::run_command_line(argc, argv);
}
