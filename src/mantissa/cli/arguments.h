// A command line, read by the tables of table.h.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/cli/table.h"

namespace mantissa::cli {

class Arguments {
 public:
  /// Reads the words behind the program's name, of which there is at least one. Throws ConfigError for a
  /// command or an option that does not exist, naming the one that was meant, and for values that are
  /// missing.
  Arguments(std::string program, std::span<const std::string> words);

  const Command& command() const { return *command_; }
  /// Positional argument `i`; empty where it was left out.
  const std::string& at(std::size_t i) const { return positionals_.at(i); }

  /// Whether the option was given. Options that the command does not take throw InternalError, here and
  /// below.
  bool has(std::string_view option) const;
  /// Its last value, or the default; empty where it has none.
  std::string text(std::string_view option) const;
  /// All its values.
  std::vector<std::string> texts(std::string_view option) const;
  /// Its value as a whole number of [least, most]. Throws ConfigError, here and below.
  std::int64_t integer(std::string_view option, std::int64_t least, std::int64_t most) const;
  double number(std::string_view option) const;
  /// A whole number of at most 19 digits.
  std::uint64_t seed() const;

  /// The whole command line with `cure` added, as a shell reads it: an option of the cure takes the place of
  /// the one that was given.
  std::string with(const Cure& cure) const;

 private:
  struct Given {
    const Option* option;
    std::vector<std::string> values;
  };
  void read_option(const std::string& word, std::span<const std::string>& rest);
  void add_positional(const std::string& word);
  /// Positional arguments that the command needs and that are missing.
  std::size_t missing() const;
  const Option& known(std::string_view option) const;

  std::string program_;
  const Command* command_ = nullptr;
  std::vector<Given> given_;  // in order
  std::vector<std::string> positionals_;
  std::size_t filled_ = 0;  // of them
};

}  // namespace mantissa::cli
