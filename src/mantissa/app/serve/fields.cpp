#include "mantissa/app/serve/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/app/serve/request_error.h"
#include "mantissa/core/base/suggest.h"
#include "mantissa/files/io/json.h"

namespace mantissa::serve {
namespace {

constexpr double kExact = 9007199254740992;  // 2^53: whole numbers up to it are exact

const nlohmann::json kNull;

}  // namespace

nlohmann::json parse_body(std::string_view body) {
  if (body.empty())
    throw RequestError(400, "the body: expected a JSON object, got nothing. Fix: {\"prompt\": \"…\"}");
  nlohmann::json parsed;
  try {
    parsed = io::parse_json(body, "the body");
  } catch (const FileError& error) {
    const std::string what = error.message();
    throw RequestError(400, what.substr(0, what.rfind(';')) + ". Fix: one JSON object in UTF-8");
  }
  if (!parsed.is_object())
    throw RequestError(400, fmt::format("the body: expected a JSON object, got {}", shown(parsed)));
  return parsed;
}

std::string shown(const nlohmann::json& value) {
  constexpr std::size_t kMost = 40;
  if (value.is_object()) return "an object";
  if (value.is_array()) return "an array";
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() <= kMost) return text;
  std::size_t end = kMost;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;  // whole characters
  return text.substr(0, end) + "…";
}

Fields::Fields(const nlohmann::json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object()) {
    const std::string name = where_.substr(0, where_.size() - 1);
    throw RequestError(400, fmt::format("{}: expected an object, got {}", name, shown(object)), name);
  }
}

const nlohmann::json& Fields::value(const char* name) {
  read_.emplace_back(name);
  const auto it = object_.find(name);
  return it == object_.end() ? kNull : *it;
}

void Fields::fail(const char* name, std::string_view expected) const {
  const auto it = object_.find(name);
  throw RequestError(400,
                     fmt::format("{}{}: expected {}, got {}", where_, name, expected,
                                 shown(it == object_.end() ? kNull : *it)),
                     where_ + name);
}

std::optional<std::int64_t> Fields::integer(const char* name, std::int64_t least, std::int64_t most) {
  const nlohmann::json& v = value(name);
  if (v.is_null()) return std::nullopt;
  const std::string expected = fmt::format("a whole number of {} to {}", least, most);
  std::int64_t n = 0;
  if (v.is_number_unsigned() && v.get<std::uint64_t>() > static_cast<std::uint64_t>(most))
    fail(name, expected);
  if (v.is_number_float()) {  // 16.0
    const double x = v.get<double>();
    if (!(std::abs(x) <= kExact) || x != std::floor(x)) fail(name, expected);
    n = static_cast<std::int64_t>(x);
  } else if (v.is_number_integer()) {
    n = v.get<std::int64_t>();
  } else {
    fail(name, expected);
  }
  if (n < least || n > most) fail(name, expected);
  return n;
}

std::optional<double> Fields::number(const char* name) {
  const nlohmann::json& v = value(name);
  if (v.is_null()) return std::nullopt;
  if (!v.is_number() || !std::isfinite(v.get<double>())) fail(name, "a finite number");
  return v.get<double>();
}

std::optional<bool> Fields::flag(const char* name) {
  const nlohmann::json& v = value(name);
  if (v.is_null()) return std::nullopt;
  if (!v.is_boolean()) fail(name, "true or false");
  return v.get<bool>();
}

std::optional<std::string> Fields::text(const char* name) {
  const nlohmann::json& v = value(name);
  if (v.is_null()) return std::nullopt;
  if (!v.is_string()) fail(name, "a string");
  return v.get<std::string>();
}

void Fields::refuse(const char* name, std::span<const nlohmann::json> harmless, std::string_view why) {
  const nlohmann::json& v = value(name);
  if (v.is_null() || std::ranges::find(harmless, v) != harmless.end()) return;
  throw RequestError(400, fmt::format("{}{}: is not supported: {}. Fix: leave it out", where_, name, why),
                     where_ + name, "unsupported_parameter");
}

void Fields::finish() const {
  for (const auto& [name, unused] : object_.items()) {
    if (std::ranges::find(read_, name) != read_.end()) continue;
    const std::optional<std::string> near = nearest(name, read_);
    const std::string fix = near ? fmt::format("did you mean \"{}{}\"?", where_, *near) : "Fix: leave it out";
    throw RequestError(400, fmt::format("{}: is not a field of this request. {}", shown(where_ + name), fix),
                       where_ + name, "unknown_parameter");
  }
}

}  // namespace mantissa::serve
