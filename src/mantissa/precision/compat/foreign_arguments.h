// The arguments of a call or the options of a command line in another system's spelling.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::compat {

struct Argument {
  std::string_view key, value;  // no key: a positional argument
};

/// Splits "a=1, b" at any of `separators`; values without quotes.
std::vector<Argument> arguments_of(std::string_view text, std::string_view separators);

/// Parses True, False, true and false. Throws ConfigError for other values.
bool flag(const Argument& argument);

/// Throws ConfigError if a key occurs twice.
void check_once(std::span<const Argument> arguments);

/// Named settings of `owner`, "MXFP8BlockScaling" or "Megatron-LM". Each is taken once.
class Settings {
 public:
  /// Throws ConfigError if a key occurs twice or is missing.
  Settings(std::string_view owner, std::vector<Argument> arguments);

  bool has(std::string_view key) const;
  /// Returns the value of `key`, or null if it is missing or None.
  std::optional<std::string_view> text(std::string_view key);
  /// Returns the value of `key`, the last part of a dotted name, in lower case, or `usual`. Throws
  /// ConfigError if it is none of `values`.
  std::string word(std::string_view key, std::string_view usual, std::vector<std::string> values);
  bool is_set(std::string_view key, bool usual = false);
  std::int64_t whole(std::string_view key, std::int64_t usual);

  /// Returns the settings that were not taken, and takes them.
  std::vector<Argument> rest();
  /// Throws ConfigError for the first setting that was not taken, with the names of all that can be.
  void refuse_rest();
  /// Throws ConfigError "OWNER: KEY=VALUE: WHY".
  [[noreturn]] void refuse(std::string_view key, std::string_view value, std::string_view why) const;

 private:
  std::string owner_;
  std::vector<Argument> arguments_;
  std::vector<std::string> known_;
};

}  // namespace mantissa::compat
