// Texts generated from the tables of commands and options: help, the manual page, completion scripts.
#pragma once

#include <string>
#include <string_view>

#include "mantissa/app/cli/table.h"

namespace mantissa::cli {

/// Returns a few lines: what the program does, the commands to begin with, and where help is.
std::string overview();
/// Returns the list of commands by purpose, in lines of at most 80 columns.
std::string help();
/// Returns a command's arguments and options, and for train also the keys of a config by task.
std::string help(const Command& command);
/// Returns the list of the commands whose names begin with `word` and a space. Empty if there is none.
std::string help_on_group(std::string_view word);

/// Returns `text` as a sentence: "Print the version."
std::string sentence(std::string_view text);

/// Returns the manual page mantissa(1) as roff.
std::string manual();

/// Returns the completion script of bash, zsh or fish. Throws ConfigError for another shell.
std::string completion(std::string_view shell);

}  // namespace mantissa::cli
