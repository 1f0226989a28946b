#include "mantissa/engine/model/fields.h"

#include <fmt/format.h>

#include <cmath>

#include "mantissa/core/base/error_text.h"

namespace mantissa::model {

using nlohmann::json;

std::string shown(const json& value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  constexpr std::size_t kLongest = 80;
  std::string text = value.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "…";
  return text;
}

const json* FieldReader::find(std::string_view key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void FieldReader::fail(std::string_view key, const std::string& what) const {
  throw ConfigError("{}: \"{}\" {}", where_, key, what);
}

void FieldReader::refuse_flag(std::string_view key, std::string_view what) const {
  if (flag(key, false)) fail(key, fmt::format("is true, which is not supported: {}", what));
}

void FieldReader::check_weights(std::string_view key, double count) const {
  constexpr double kMost = 1e13;
  if (count > kMost)
    fail(key, fmt::format("gives, with the other sizes, {:.2g} weights, more than {:.0e}; check the sizes",
                          count, kMost));
}

void FieldReader::refuse(std::string_view key, std::string_view what) const {
  if (const json* v = find(key); v != nullptr)
    fail(key, fmt::format("is {}, which is not supported: {}", shown(*v), what));
}

std::int64_t FieldReader::size(std::string_view key, std::optional<std::int64_t> fallback, std::int64_t most,
                               std::int64_t least) const {
  const json* v = find(key);
  if (v == nullptr) {
    if (!fallback) fail(key, fmt::format("is missing; a {} config needs it", text("model_type", "llama")));
    return *fallback;
  }
  if (!v->is_number_integer()) fail(key, fmt::format("is {}, but must be a whole number", shown(*v)));
  const auto n = v->get<std::int64_t>();  // negative for 2^63 and above
  if (n < least || n > most)
    fail(key, fmt::format("is {}, but must be between {} and {}", shown(*v), least, most));
  return n;
}

double FieldReader::number(std::string_view key, double fallback, bool zero_allowed) const {
  const json* v = find(key);
  if (v == nullptr) return fallback;
  if (!v->is_number()) fail(key, fmt::format("is {}, but must be a number", shown(*v)));
  const double x = v->get<double>();
  if (!std::isfinite(x) || x < 0 || (x == 0 && !zero_allowed))
    fail(key, fmt::format("is {}, but must be positive", shown(*v)));
  using Limits = std::numeric_limits<float>;  // the kernels compute in f32
  if (x != 0 && (x < Limits::min() || x > Limits::max()))
    fail(key, fmt::format("is {}, but must be a number in the range of f32", shown(*v)));
  return x;
}

bool FieldReader::flag(std::string_view key, bool fallback) const {
  const json* v = find(key);
  if (v == nullptr) return fallback;
  if (!v->is_boolean()) fail(key, fmt::format("is {}, but must be true or false", shown(*v)));
  return v->get<bool>();
}

std::string FieldReader::text(std::string_view key, const std::string& fallback) const {
  const json* v = find(key);
  if (v == nullptr) return fallback;
  if (!v->is_string()) fail(key, fmt::format("is {}, but must be a string", shown(*v)));
  return v->get<std::string>();
}

std::optional<FieldReader> FieldReader::object(std::string_view key) const {
  const json* v = find(key);
  if (v == nullptr) return std::nullopt;
  if (!v->is_object()) fail(key, fmt::format("is {}, but must be an object", shown(*v)));
  if (v->empty()) return std::nullopt;
  return FieldReader(*v, fmt::format("{}: {}", where_, key));
}

}  // namespace mantissa::model
