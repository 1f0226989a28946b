#include "mantissa/text/rows/json_array.h"

#include <fmt/format.h>

#include "mantissa/core/base/error_text.h"
#include "mantissa/text/rows/file_place.h"
#include "mantissa/text/rows/lines.h"

namespace mantissa::text {
namespace {

constexpr std::string_view kCutOff =
    "the file ends before the \"]\" of its array. Fix: check that the file is complete";

/// Names a byte in a message.
std::string shown(int byte) {
  return byte > 0x20 && byte < 0x7f ? fmt::format("\"{}\"", static_cast<char>(byte))
                                    : fmt::format("the byte 0x{:02x}", byte);
}

}  // namespace

void JsonArray::refuse(std::string_view why) const {
  throw FileError("{}: {}", FilePlace{bytes_.line(), row_}.in(bytes_.input().path()), why);
}

int JsonArray::after_space() {
  while (true) {
    const int byte = bytes_.peek();
    if (byte != ' ' && byte != '\t' && byte != '\n' && byte != '\r') return byte;
    bytes_.get();
  }
}

void JsonArray::end() {
  ended_ = true;
  if (const int byte = after_space(); byte >= 0) {
    refuse(
        fmt::format("{} follows the end of the array; a file is one array of objects, or one JSON object "
                    "on each line. Fix: remove what follows, or write one array",
                    shown(byte)));
  }
}

bool JsonArray::next(std::string& text) {
  if (ended_) return false;
  const bool first = !begun_;
  if (first) {
    after_space();
    bytes_.get();
    begun_ = true;
  }
  int byte = after_space();
  if (byte == ']') {
    bytes_.get();
    end();
    return false;
  }
  if (!first) {
    if (byte < 0) refuse(kCutOff);
    if (byte != ',') {
      refuse(
          fmt::format("expected a comma or \"]\" after the row, got {}. Fix: write the file with a JSON "
                      "library, or one object on each line",
                      shown(byte)));
    }
    bytes_.get();
    byte = after_space();
  }
  ++row_;
  line_ = bytes_.line();
  if (byte < 0) refuse(kCutOff);
  if (byte != '{') {
    refuse(fmt::format("expected an object, got {}; every element of the array must be one JSON object",
                       shown(byte)));
  }
  read_object(text);
  return true;
}

void JsonArray::read_object(std::string& text) {
  text.clear();
  int depth = 0;
  bool in_string = false, escaped = false;
  do {
    const std::string_view rest = bytes_.rest();
    if (rest.empty()) {
      throw FileError("{}: the file ends within this row. Fix: check that the file is complete",
                      FilePlace{line_, row_}.in(bytes_.input().path()));
    }
    std::size_t at = 0;
    for (bool more = true; more && at < rest.size(); ++at) {
      const char c = rest[at];
      if (in_string) {
        in_string = escaped || c != '"';
        escaped = !escaped && c == '\\';
      } else if (c == '"') {
        in_string = true;
      } else if (c == '{' || c == '[') {
        ++depth;
      } else if (c == '}' || c == ']') {
        more = --depth > 0;
      }
    }
    text.append(rest.substr(0, at));
    bytes_.take(at);
    if (text.size() > kMostRowBytes) {
      throw FileError(
          "{}: the row has more than {} MiB. Fix: check its quotes and braces, or split it into several rows",
          FilePlace{line_, row_}.in(bytes_.input().path()), kMostRowBytes >> 20U);
    }
  } while (depth > 0);
}

}  // namespace mantissa::text
