// A command line, parsed by the tables of table.h.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/app/cli/table.h"
#include "mantissa/core/base/error.h"

namespace mantissa::cli {

/// Returns the number that `text` is, or null for another text.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

class Arguments {
 public:
  /// Parses the words after the program's name, of which there must be at least one. Options may precede the
  /// command, each with one value. Throws ConfigError for an unknown command, option or choice, with a
  /// suggestion, and for missing values.
  Arguments(std::string program, std::span<const std::string> words);

  const std::string& program() const { return program_; }
  const Command& command() const { return *command_; }
  /// Returns the first word if it begins the names of several commands, and only help on them is requested;
  /// else "".
  const std::string& group() const { return group_; }
  /// Returns positional argument `i`, or "" if it was omitted.
  const std::string& at(std::size_t i) const { return positionals_.at(i); }
  /// Returns the positional arguments that were given.
  std::span<const std::string> given() const { return std::span(positionals_).first(filled_); }

  /// Returns true if the option was given. Here and below, an option that the command does not take throws
  /// InternalError.
  bool has(std::string_view option) const;
  /// Returns the option's last value, its default, or "".
  std::string text(std::string_view option) const;
  /// Returns all values of the option.
  std::vector<std::string> texts(std::string_view option) const;
  /// Returns the option's value as a whole number of [least, most]. Throws ConfigError, as do the functions
  /// below.
  std::int64_t integer(std::string_view option, std::int64_t least, std::int64_t most) const;
  double number(std::string_view option) const;
  /// Returns a whole number of at most 19 digits.
  std::uint64_t seed() const;

  /// Returns the whole command line with `cure` applied, quoted for a shell. Options of the cure replace
  /// those given.
  std::string with(const Cure& cure) const;

 private:
  struct Given {
    const Option* option;
    std::vector<std::string> values;
  };
  void read(std::span<const std::string> rest);
  void read_option(const std::string& word, std::span<const std::string>& rest);
  void add_positional(const std::string& word);
  /// Returns the number of missing positional arguments that the command requires.
  std::size_t missing() const;
  const Option& known(std::string_view option) const;

  std::string program_;
  const Command* command_ = nullptr;
  std::string group_;
  std::vector<Given> given_;  // in the given order
  std::vector<std::string> positionals_;
  std::size_t filled_ = 0;  // number of positional arguments so far
};

}  // namespace mantissa::cli
