// Output to standard output and standard error.
#pragma once

#include <string_view>

namespace mantissa::cli {

/// Throws ResourceError for errno `error` of a write to standard output.
[[noreturn]] void throw_output_error(int error);
/// Flushes standard output. Throws ResourceError if that fails.
void flush_output();

/// Prints on standard error. Ignores failures, because they cannot be reported anywhere else.
void print_error(std::string_view text);

}  // namespace mantissa::cli
