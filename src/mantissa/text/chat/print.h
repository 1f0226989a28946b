// Values as text: str(), repr() and JSON, as Python writes them.
#pragma once

#include <string>
#include <string_view>

#include "mantissa/text/chat/value.h"

namespace mantissa::chat {

/// Returns str(v).
std::string str(const Value& v, Meter& meter);
/// Returns repr(v).
std::string repr(const Value& v, Meter& meter);
/// Returns repr of a string.
std::string repr_text(std::string_view text);
/// Returns repr of a float: the shortest digits that give the same number.
std::string repr_real(double d);

struct JsonStyle {
  bool ascii = false;
  std::optional<std::string> indent = {};  // of one level; without it everything stands on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};

/// Returns json.dumps(v). Throws a Fault for values that JSON does not have.
std::string to_json(const Value& v, const JsonStyle& style, Meter& meter);

}  // namespace mantissa::chat
