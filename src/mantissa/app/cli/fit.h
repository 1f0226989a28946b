// Fits a plan's text to a narrow terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mantissa::cli {

/// Returns the columns of the terminal on standard output, or 0 if it is not a terminal.
std::size_t terminal_columns();

/// Wraps `text` to `columns` columns, or returns it unchanged for 0. In tables that are wider, the modules of
/// a layer are listed below a line with the layer. Other lines break at spaces and continue indented.
std::string fit(std::string_view text, std::size_t columns);

}  // namespace mantissa::cli
