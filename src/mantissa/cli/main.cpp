#include "mantissa/cli/options.h"

int main(int argc, char** argv) {
  return mantissa::cli::run_command_line(argc, argv);
}
