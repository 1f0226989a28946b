#include "mantissa/precision/compat/deepspeed_block.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"

namespace mantissa::compat {
namespace {

constexpr std::string_view kAuto = "auto";

bool automatic(const JsonValue& value) {
  return value.kind == JsonValue::Kind::text && value.text == kAuto;
}

std::string shown(const JsonValue& value) {
  switch (value.kind) {
    case JsonValue::Kind::null:
      return "null";
    case JsonValue::Kind::boolean:
      return value.flag ? "true" : "false";
    case JsonValue::Kind::number:
      return value.text;
    case JsonValue::Kind::text:
      return in_quotes(value.text);
    case JsonValue::Kind::array:
      return "an array";
    case JsonValue::Kind::object:
      return "an object";
  }
  return {};
}

/// Escapes a key for a message, without quotes.
std::string plain(std::string_view key) {
  const std::string text = in_quotes(key);
  return text.substr(1, text.size() - 2);
}

}  // namespace

DeepSpeedBlock::DeepSpeedBlock(const JsonValue* object, std::string path, DeepSpeedFile& out)
    : object_(object), path_(std::move(path)), out_(out) {}

std::string DeepSpeedBlock::path(std::string_view key) const {
  return path_.empty() ? plain(key) : fmt::format("{}.{}", path_, plain(key));
}

bool DeepSpeedBlock::has(std::string_view key) const {
  const JsonValue* value = object_ == nullptr ? nullptr : object_->find(key);
  return value != nullptr && value->kind != JsonValue::Kind::null;
}

bool DeepSpeedBlock::is_auto(std::string_view key) const {
  return has(key) && automatic(*object_->find(key));
}

void DeepSpeedBlock::skip(std::string_view key) {
  read_.emplace_back(key);
}

const JsonValue* DeepSpeedBlock::take(std::string_view key, ConfigKey config) {
  skip(key);
  if (!has(key)) return nullptr;
  if (!is_auto(key)) return object_->find(key);
  out_.autos.push_back({path(key), std::string(config.section), std::string(config.key)});
  return nullptr;
}

std::optional<bool> DeepSpeedBlock::flag(std::string_view key, ConfigKey config) {
  const JsonValue* value = take(key, config);
  if (value == nullptr) return std::nullopt;
  if (value->kind == JsonValue::Kind::number && (value->number == 0 || value->number == 1))
    return value->number == 1;
  if (value->kind != JsonValue::Kind::boolean) refuse(key, "must be true or false");
  return value->flag;
}

std::optional<double> DeepSpeedBlock::number(std::string_view key, ConfigKey config) {
  const JsonValue* value = take(key, config);
  if (value == nullptr) return std::nullopt;
  if (value->kind != JsonValue::Kind::number) refuse(key, "must be a number");
  return value->number;
}

std::optional<std::int64_t> DeepSpeedBlock::whole(std::string_view key, std::int64_t least,
                                                  ConfigKey config) {
  constexpr double kMost = 9007199254740992;  // 2^53
  const std::optional<double> value = number(key, config);
  if (!value) return std::nullopt;
  if (*value != std::floor(*value) || *value > kMost) refuse(key, "must be a whole number");
  if (*value < static_cast<double>(least)) refuse(key, fmt::format("must be at least {}", least));
  return static_cast<std::int64_t>(*value);
}

std::optional<std::vector<double>> DeepSpeedBlock::numbers(std::string_view key, ConfigKey config) {
  const JsonValue* value = take(key, config);
  if (value == nullptr) return std::nullopt;
  if (value->kind != JsonValue::Kind::array) refuse(key, "must be an array of numbers");
  std::vector<double> out;
  for (const JsonValue& item : value->items) {
    if (item.kind != JsonValue::Kind::number) refuse(key, "must be an array of numbers");
    out.push_back(item.number);
  }
  return out;
}

std::optional<std::string> DeepSpeedBlock::text(std::string_view key, ConfigKey config) {
  const JsonValue* value = take(key, config);
  if (value == nullptr) return std::nullopt;
  if (value->kind != JsonValue::Kind::text) refuse(key, "must be a string");
  return value->text;
}

DeepSpeedBlock DeepSpeedBlock::block(std::string_view key, bool or_flag) {
  const JsonValue* value = take(key, {});
  if (value != nullptr && or_flag && value->kind == JsonValue::Kind::boolean) value = nullptr;
  if (value != nullptr && value->kind != JsonValue::Kind::object) refuse(key, "must be an object, {…}");
  return {value, path(key), out_};
}

DeepSpeedBlock DeepSpeedBlock::switched(std::string_view key) {
  if (has(key) && !is_auto(key) && object_->find(key)->kind != JsonValue::Kind::object)
    refuse(key, R"(must be an object such as {"enabled": true})");
  return block(key);
}

void DeepSpeedBlock::rest() {
  if (object_ == nullptr) return;
  for (const std::string& key : object_->keys) {
    if (std::ranges::find(read_, key) != read_.end()) continue;
    if (is_auto(key)) {
      out_.autos.push_back({path(key), "", ""});
    } else {
      out_.ignored.push_back(path(key) + did_you_mean(key, read_));
    }
  }
}

void DeepSpeedBlock::refuse(std::string_view key, std::string_view why) const {
  throw ConfigError("{}: {} = {}: {}", out_.name, path(key), shown(*object_->find(key)), why);
}

}  // namespace mantissa::compat
