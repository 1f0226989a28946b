// JSON with common deviations: comments, Python's literals, single quotes and trailing commas.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mantissa::compat {

struct JsonValue {
  enum class Kind { null, boolean, number, text, array, object } kind = Kind::null;
  bool flag = false;
  double number = 0;
  std::string text;               // of a string; the digits of a number as written
  std::vector<JsonValue> items;   // of an array or an object
  std::vector<std::string> keys;  // of an object: keys[i] names items[i]
  int line = 1;                   // where the value begins

  /// Returns the member `key`, or null.
  const JsonValue* find(std::string_view key) const;
};

/// Parses the object in `text`. Beyond JSON it accepts comments (//, #, /* */); True, False and None; single
/// quotes; keys without quotes; tuples as arrays; commas before a closing bracket; digits grouped by "_"; a
/// leading "+" or "."; "NAME =" before the object; and members without braces around them. Messages name
/// `file`. Throws FileError if `text` is not UTF-8 or exceeds 1 MiB. Throws ConfigError with the line for bad
/// syntax, a repeated key, a number that is not finite, nesting deeper than 64 levels, or more than 1000
/// members.
JsonValue parse_relaxed_json(std::string_view text, const std::string& file);

}  // namespace mantissa::compat
