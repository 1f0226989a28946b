// JSON of tokenizer files: values that know their path, so that an error names it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/text/tokenizer/piece.h"

namespace mantissa::tokenizer {

/// A parsed tokenizer.json. Sorting the members of $.model.vocab would take most of the time of reading it,
/// so they are apart, in the order of the file, and the object itself is empty.
struct JsonDocument {
  nlohmann::json json;
  std::vector<std::pair<std::string, nlohmann::json>> vocabulary;  // equal keys: the last counts
  const nlohmann::json* vocabulary_of = nullptr;                   // the object; null: none
};

/// Parses `text`. Throws FileError with the name of `file` if it is not JSON or nests deeper than 64 levels.
/// The last of equal keys counts. Numbers with a fraction are rounded as by Rust's serde_json, which differs
/// in the last bit.
nlohmann::json parse_json(std::string_view text, const std::string& file);
JsonDocument parse_document(std::string_view text, const std::string& file);

/// A value and its place. The parsed document must outlive it.
class JsonView {
 public:
  JsonView(const nlohmann::json& value, std::string file, std::string path = "$")
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}
  JsonView(const JsonDocument& document, std::string file)
      : value_(&document.json), document_(&document), file_(std::move(file)), path_("$") {}

  const nlohmann::json& json() const { return *value_; }
  /// Returns the member `key`. Throws if this is not an object or has no such member.
  JsonView at(std::string_view key) const;
  /// Returns the member `key`, or null if it is absent or null.
  std::optional<JsonView> find(std::string_view key) const;
  /// Calls each(key, value) for the members of an object. Equal keys of a vocabulary occur several times; the
  /// last counts.
  void members(FunctionRef<void(const std::string&, const nlohmann::json&)> each) const;
  std::size_t member_count() const;
  /// Returns the elements of an array.
  std::vector<JsonView> items() const;
  std::string text() const;
  bool boolean() const;
  /// Returns an integer in [0, limit].
  std::int64_t integer(std::int64_t limit) const;
  /// Returns the one code point of a text of length 1.
  char32_t character() const;
  bool boolean_or(std::string_view key, bool otherwise) const;
  std::string text_or(std::string_view key, std::string_view otherwise) const;
  /// Throws FileError: FILE: PATH: MESSAGE. Fix: …
  [[noreturn]] void fail(std::string_view message, std::string_view fix = "") const;

 private:
  [[noreturn]] void expected(std::string_view what) const;
  JsonView inside(const nlohmann::json& value, std::string path) const;
  bool is_vocabulary() const { return document_ != nullptr && document_->vocabulary_of == value_; }

  const nlohmann::json* value_;
  const JsonDocument* document_ = nullptr;
  std::string file_, path_;
};

}  // namespace mantissa::tokenizer
