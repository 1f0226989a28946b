// A terminal obeys control characters, and what a command prints may come from somebody else: a model's text,
// names in a file, paths. On a terminal, standard output shows them as escape sequences in plain letters
// (core/base/printable.h). Files and pipes get the bytes as they are.
#pragma once

#include <string>
#include <string_view>

namespace mantissa::cli {

/// Returns `text` with everything that could change the text around it written out, but line ends, tabs and
/// colours ("\x1b[1m"). Takes whole characters from `text`, and leaves the first bytes of one that is not
/// complete, unless `at_end`. `erases`: "\r\x1b[K" remains too.
std::string safe_for_terminal(std::string_view& text, bool at_end, bool erases);

/// If standard output is a terminal, lets everything that is printed pass through safe_for_terminal().
void guard_terminal();

/// From now on, "\r\x1b[K" erases the line: the command prints no text of somebody else.
void let_lines_be_erased();

}  // namespace mantissa::cli
