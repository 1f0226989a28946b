// The words that completion scripts offer.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <string_view>
#include <vector>

#include "mantissa/app/cli/table.h"

namespace mantissa::cli {

/// What an option or a positional argument takes.
struct Values {
  enum { none, words, keys, rule, files, directories, any } kind = none;
  std::vector<std::string> list = {};  // of words and keys
  bool or_files = false;               // files too, beside the words
};

/// Returns the values of an option, or of a positional argument if `option` is empty, by the argument's name
/// in the table.
Values values_of(std::string_view option, std::string_view argument);
/// Returns the values of the first positional argument of `command`.
Values subject_of(const Command& command);
bool takes_value(const Option& option);

/// Returns the first words of the commands, each once.
std::vector<std::string> first_words();
/// Returns the first words of commands that have two.
std::vector<std::string> groups();
/// Returns the second words of the commands that begin with `word`.
std::vector<std::string> second_words(std::string_view word);
/// Returns the words that `mantissa help` takes beside commands and keys.
std::vector<std::string> help_topics();

/// Returns the names of the options that take a value, each once.
std::vector<std::string_view> options_with_values();
/// Returns the names of the options of `command`, in one line.
std::string names_of(const Command& command);
/// Returns the options that may stand before any command, or alone, in one line.
std::string before_command();

/// Returns what a rule begins with: the scopes of a model, as "SCOPE:".
const std::vector<std::string>& rule_scopes();
/// Returns what follows the scope of a rule: its keys, as "compute=".
std::vector<std::string> rule_keys();

std::string joined(const auto& words) {
  return fmt::format("{}", fmt::join(words, " "));
}

}  // namespace mantissa::cli
