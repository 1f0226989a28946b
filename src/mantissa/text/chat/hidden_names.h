// Jinja's rule for names that a template assigns at its outermost level.
#pragma once

#include <vector>

#include "mantissa/text/chat/ast.h"

namespace mantissa::chat {

/// Returns the names that the outermost level assigns before it reads them, on every path. They hide the
/// conversation's variables of these names from the start: loops, macros and blocks that stand before the
/// assignment see them as undefined.
std::vector<int> hidden_names(const Body& body);

}  // namespace mantissa::chat
