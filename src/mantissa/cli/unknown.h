// Words of a command line that are none here, and what was meant: the spellings of other programs, and keys
// of a config.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "mantissa/cli/table.h"

namespace mantissa::cli {

/// The message for the first of `words`, which is no command.
std::string unknown_command(std::span<const std::string> words);

/// The message for `option`, which `command` does not take; `value`: the word behind it, where there is one.
std::string unknown_option(const Command& command, std::string_view option, std::string_view value);

}  // namespace mantissa::cli
