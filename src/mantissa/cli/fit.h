// A plan's text for a terminal of few columns.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace mantissa::cli {

/// Columns of the terminal that standard output is; 0 where it is none.
std::size_t terminal_columns();

/// `text` in lines of at most `columns`; as it is where that is 0. Tables of a plan that are wider show the
/// scopes of a layer below a line with the layer; other lines are broken at spaces, and go on under their
/// text.
std::string fit(std::string_view text, std::size_t columns);

}  // namespace mantissa::cli
