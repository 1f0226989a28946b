// Unknown words of a command line, and suggestions: for options of other programs, and for config keys.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "mantissa/app/cli/table.h"

namespace mantissa::cli {

/// Returns the message for a command line of only options, of which `option` is the first.
std::string command_is_missing(std::string_view option);

/// Returns the message for `words` that begin with an unknown command, or with the first word of several.
std::string unknown_command(std::span<const std::string> words);

/// Returns the message for `mantissa help WORD` if the word is not a command, config key or section.
std::string unknown_help(const std::string& word);

/// Returns "WHERE: expected one of A, B, got "WORD"", with the choice that is meant.
std::string wrong_choice(std::string_view where, const std::string& word,
                         std::span<const std::string> choices);

/// Returns the message for `option`, which `command` does not take. `value` is the word after it, if there is
/// one.
std::string unknown_option(const Command& command, std::string_view option, std::string_view value);

/// Returns the message for `word`, which is an argument too many for `command`, or "" if `word` is not a key
/// of a config with its value and `too_many` is false: keys are options, "--set run.steps=3".
std::string unexpected_argument(const Command& command, const std::string& word, bool too_many);

}  // namespace mantissa::cli
