#include "mantissa/cli/output.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "mantissa/base/error.h"

namespace mantissa::cli {

void throw_output_error(int error) {
  throw ResourceError(
      fmt::format("standard output: cannot be written: {}", std::generic_category().message(error)));
}

void flush_output() {
  if (std::fflush(stdout) != 0) throw_output_error(errno);
}

void print_error(std::string_view text) {
  [[maybe_unused]] const std::size_t written = std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace mantissa::cli
