// JSON as people paste it into files: with comments, Python's literals, single quotes and trailing commas.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mantissa::compat {

struct JsonValue {
  enum class Kind { null, boolean, number, text, array, object } kind = Kind::null;
  bool flag = false;
  double number = 0;
  std::string text;               // of a string; of a number as it is written
  std::vector<JsonValue> items;   // of an array or an object
  std::vector<std::string> keys;  // of an object: keys[i] names items[i]
  int line = 1;                   // where it begins

  /// The member called `key`; null where there is none.
  const JsonValue* find(std::string_view key) const;
};

/// The object that `text` holds. Beside JSON it may have: comments (//, #, /* */), True, False and None,
/// quotes of one kind, keys without quotes, tuples for arrays, commas before a closing bracket, digits
/// grouped by "_", a leading "+" or "."; "NAME =" before the object; or members without the braces around
/// them. `file` stands in messages. Throws FileError for what is no text of at most 1 MiB, ConfigError with
/// the line for everything else: bad syntax, a key that is said twice, a number that is not finite, nesting
/// deeper than 64, more than 1000 members.
JsonValue parse_relaxed_json(std::string_view text, const std::string& file);

}  // namespace mantissa::compat
