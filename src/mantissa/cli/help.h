// What is printed of the tables of commands and options: help, the manual page, completion scripts.
#pragma once

#include <string>
#include <string_view>

#include "mantissa/cli/table.h"

namespace mantissa::cli {

/// The commands, in lines of at most 80 columns.
std::string help();
/// A command's arguments and options; of train also the keys of a config.
std::string help(const Command& command);

/// `text` as a sentence: "Print the version."
std::string sentence(std::string_view text);

/// The manual page, mantissa(1), as roff.
std::string manual();

/// The completion script of bash, zsh or fish. Throws ConfigError for another shell.
std::string completion(std::string_view shell);

}  // namespace mantissa::cli
