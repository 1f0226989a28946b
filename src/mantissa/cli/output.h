// Standard output and standard error, whose faults are reported once.
#pragma once

#include <string_view>

namespace mantissa::cli {

/// Throws ResourceError for errno `error` of a write to standard output.
[[noreturn]] void throw_output_error(int error);
/// Writes out what is buffered for standard output. Throws ResourceError if any of it cannot be written.
void flush_output();

/// Prints on standard error. A failure is ignored, as there is no place left to report it.
void print_error(std::string_view text);

}  // namespace mantissa::cli
