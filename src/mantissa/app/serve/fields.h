// The fields of a JSON request, each read once by name and type. null counts as absent.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::serve {

/// Parses the body of a request. Throws RequestError (400) unless it is a JSON object without repeated keys,
/// of at most 64 levels, in UTF-8, with numbers in the range of a double.
nlohmann::json parse_body(std::string_view body);

/// Reads an object field by field. The functions throw RequestError (400) with the field's name.
class Fields {
 public:
  /// `where` precedes the names of fields in messages: "stream_options.". `object` must outlive the reader.
  explicit Fields(const nlohmann::json& object, std::string where = {});

  std::optional<std::int64_t> integer(const char* name, std::int64_t least, std::int64_t most);
  /// Returns a finite number.
  std::optional<double> number(const char* name);
  std::optional<bool> flag(const char* name);
  std::optional<std::string> text(const char* name);
  /// Returns the value as it is; null if it is absent.
  const nlohmann::json& value(const char* name);
  /// Throws if the field has another value than one of `harmless`, with `why`.
  void refuse(const char* name, std::span<const nlohmann::json> harmless, std::string_view why);
  /// Accepts a field that changes nothing.
  void ignore(const char* name) { value(name); }

  /// Throws for a field that was not read, with the nearest one that exists.
  void finish() const;

  /// Throws for the field `name`: "NAME: expected EXPECTED, got VALUE".
  [[noreturn]] void fail(const char* name, std::string_view expected) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
  std::vector<std::string> read_;
};

/// Returns JSON for a message: its beginning, if it is long.
std::string shown(const nlohmann::json& value);

}  // namespace mantissa::serve
