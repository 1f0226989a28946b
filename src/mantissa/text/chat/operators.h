// The operators of expressions, with Python's meaning. Each throws a Fault for operands that it does not
// take.
#pragma once

#include <string_view>

#include "mantissa/text/chat/value.h"

namespace mantissa::chat {

/// Applies + - * / // % or **.
Value apply_operator(std::string_view symbol, const Value& a, const Value& b, Meter& meter);
/// Applies == != < <= > >= `in` or `not in`.
bool apply_comparison(std::string_view symbol, const Value& a, const Value& b, Meter& meter);
Value negate(const Value& v);
Value positive(const Value& v);
/// Returns true if `item in container`.
bool contains(const Value& container, const Value& item, Meter& meter);
/// Escapes & < > ' " for HTML, as the filter `escape`.
std::string escape_html(std::string_view text);

}  // namespace mantissa::chat
