// Unknown words of a command line, and suggestions: for options of other programs, and for config keys.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "mantissa/app/cli/table.h"

namespace mantissa::cli {

/// Returns the message for the first of `words`, an unknown command.
std::string unknown_command(std::span<const std::string> words);

/// Returns the message for `mantissa help WORD` if the word is not a command, config key or section.
std::string unknown_help(const std::string& word);

/// Returns the message for `option`, which `command` does not take. `value` is the word after it, if there is
/// one.
std::string unknown_option(const Command& command, std::string_view option, std::string_view value);

}  // namespace mantissa::cli
