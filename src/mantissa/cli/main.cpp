#include <csignal>

#include "mantissa/cli/options.h"

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of its write, with a message
  return mantissa::cli::run_command_line(argc, argv);
}
