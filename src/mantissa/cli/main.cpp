#include <unistd.h>

#include <csignal>
#include <string_view>

#include "mantissa/cli/common.h"

namespace {

/// What a file that is read as memory (docs/models.md) does when it becomes shorter. Nothing can be saved or
/// cleaned up here, and nothing needs to be: the commands that map files write at their end.
void cut_short(int /*signal*/) {
  constexpr std::string_view kMessage =
      "mantissa: a file of the model was cut short while it was read; run again when it is whole\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage.data(), kMessage.size());
  _exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of its write, with a message
  std::signal(SIGBUS, cut_short);
  return mantissa::cli::run_command_line(argc, argv);
}
