// The tests of templates: what may follow `is`.
#pragma once

#include <string>
#include <string_view>

#include "mantissa/text/chat/arguments.h"
#include "mantissa/text/chat/value.h"

namespace mantissa::chat {

using Test = bool (*)(Interpreter&, const Value& input, Arguments&);

/// Returns the test, or null.
Test find_test(std::string_view name);
/// Returns the message for a name that find_test does not know.
std::string unknown_test(std::string_view name);

}  // namespace mantissa::chat
