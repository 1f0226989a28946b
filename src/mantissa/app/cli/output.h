// Output to standard output and standard error, in colour on a terminal.
#pragma once

#include <string>
#include <string_view>

namespace mantissa::cli {

/// Returns the message about errno `error` of a write to standard output, with the cure.
std::string output_error(int error);
/// Throws it as ResourceError.
[[noreturn]] void throw_output_error(int error);
/// Flushes standard output. Throws ResourceError if that fails.
void flush_output();

/// When to use colours. `automatic`: on a terminal that has them, unless the environment has NO_COLOR
/// (no-color.org).
enum class Color { automatic, always, never };
/// Holds for the rest of the process. Without a call: automatic.
void use_color(Color color);
/// Returns true if standard output has colours.
bool has_color();

/// Prints on standard error. Ignores failures, because they cannot be reported anywhere else.
void print_error(std::string_view text);
enum class Message { error, warning, note };
/// Prints a message that begins with "mantissa: " on standard error. Its prefix has the colour of its kind.
void print_message(Message kind, std::string_view text);

/// Return `text` in bold, or in the colour of warnings, if standard output has colours.
std::string bold(std::string_view text);
std::string as_warning(std::string_view text);
/// Prints on standard output, with headings in bold. A heading begins at the margin; it ends with a colon, or
/// is one word after an empty line. The word "usage:" is bold too.
void print_with_headings(std::string_view text);

}  // namespace mantissa::cli
