// Typed reading of config.json's fields, with errors that give the file and the key.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace mantissa::model {

/// The largest size of a dimension: ids and rows are 32-bit.
inline constexpr std::int64_t kLargestSize = (std::int64_t{1} << 31) - 1;

/// A field of config.json that a family reads.
struct Field {
  enum class Kind { whole, number, flag, text, any };
  std::string_view key;
  Kind kind = Kind::any;
  std::string_view description;
};

/// Returns a value for a message: on one line, truncated after 80 characters.
std::string shown(const nlohmann::json& value);

/// Reads the fields of one object. A field that is missing or null has its default. All readers throw
/// ConfigError for a value of another type or out of range.
class FieldReader {
 public:
  /// `object` must outlive the reader. `where` is the file's name in messages.
  FieldReader(const nlohmann::json& object, std::string where) : object_(object), where_(std::move(where)) {}

  const std::string& where() const { return where_; }
  const nlohmann::json* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  /// Returns true for a field that is null. For some fields this differs from a missing one.
  bool is_null(std::string_view key) const { return object_.contains(key) && !has(key); }

  /// Returns a whole number from `least` to `most`. Without a default the field is required.
  std::int64_t size(std::string_view key, std::optional<std::int64_t> fallback = std::nullopt,
                    std::int64_t most = kLargestSize, std::int64_t least = 1) const;
  /// Returns a positive number that f32 can represent.
  double number(std::string_view key, double fallback, bool zero_allowed = false) const;
  bool flag(std::string_view key, bool fallback) const;
  std::string text(std::string_view key, const std::string& fallback) const;
  /// Returns a reader of the object KEY, whose messages start with "FILE: KEY", or null if the object is
  /// missing or empty.
  std::optional<FieldReader> object(std::string_view key) const;

  /// Throws ConfigError: "FILE: "KEY" WHAT".
  [[noreturn]] void fail(std::string_view key, const std::string& what) const;
  /// Throws if the flag is true. `what` describes the affected part of the model.
  void refuse_flag(std::string_view key, std::string_view what) const;
  /// Throws if the field gives `count` weights in all, more than any model has: their bytes could overflow.
  void check_weights(std::string_view key, double count) const;
  /// Throws if the field exists and is not null.
  void refuse(std::string_view key, std::string_view what) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
};

}  // namespace mantissa::model
