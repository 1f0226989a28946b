#include "mantissa/text/tokenizer/json.h"

#include <fmt/format.h>

#include <limits>

#include "mantissa/core/base/error_text.h"
#include "mantissa/text/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kDeepest = 64;
constexpr std::string_view kNewCopy = "get the file again from its source";

// A decimal number as serde_json rounds it: 64 bits of digits, converted to f64, times or divided by a power
// of ten.
double serde_value(std::string_view digits) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t significand = 0;
  std::int64_t exponent = 0;
  bool negative = false, fraction = false, full = false;
  std::size_t i = 0;
  for (; i < digits.size() && digits[i] != 'e' && digits[i] != 'E'; ++i) {
    const char c = digits[i];
    if (c == '-') {
      negative = true;
    } else if (c == '.') {
      fraction = true;
    } else {
      const auto digit = static_cast<std::uint64_t>(c - '0');
      full = full || significand > kMost / 10 || (significand == kMost / 10 && digit > kMost % 10);
      if (!full) significand = significand * 10 + digit;
      if (full && !fraction) ++exponent;
      if (!full && fraction) --exponent;
    }
  }
  if (i < digits.size()) {
    std::int64_t written = 0;
    bool below = false;
    for (++i; i < digits.size(); ++i) {
      if (digits[i] == '-') below = true;
      if (digits[i] >= '0' && digits[i] <= '9' && written < 100000)
        written = written * 10 + (digits[i] - '0');
    }
    exponent += below ? -written : written;
  }
  auto value = static_cast<double>(significand);
  while (exponent < -308 && value != 0) {
    value /= 1e308;
    exponent += 308;
  }
  // strtod gives the correctly rounded powers of ten of serde_json's table.
  if (exponent >= 0)
    value *= exponent > 308 ? 0.0 : std::strtod(fmt::format("1e{}", exponent).c_str(), nullptr);
  else if (value != 0)
    value /= std::strtod(fmt::format("1e{}", -exponent).c_str(), nullptr);
  return negative ? -value : value;
}

// Builds a document from the parser's events.
class Builder {
 public:
  /// `splits`: the vocabulary is kept apart.
  Builder(std::string_view text, const std::string& file, bool splits)
      : bytes_(text.size()), file_(file), splits_(splits) {
    Json::sax_parse(text.begin(), text.end(), this);
  }
  JsonDocument result;

  bool null() { return put(nullptr); }
  bool boolean(bool value) { return put(value); }
  bool number_integer(Json::number_integer_t value) { return put(value); }
  bool number_unsigned(Json::number_unsigned_t value) { return put(value); }
  bool number_float(Json::number_float_t, const std::string& digits) { return put(serde_value(digits)); }
  bool string(std::string& value) { return put(std::move(value)); }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(std::size_t) {
    const bool vocabulary = splits_ && stack_.size() == 2 && keys_[0] == "model" && keys_[1] == "vocab";
    open(Json::object());
    if (!vocabulary) return true;
    result.vocabulary.clear();
    result.vocabulary_of = stack_.back();
    return true;
  }
  bool start_array(std::size_t) { return open(Json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& value) {
    if (stack_.back() == result.vocabulary_of) {
      member_ = &result.vocabulary.emplace_back(std::move(value), nullptr).second;
      return true;
    }
    if (stack_.size() <= 2) keys_[stack_.size() - 1] = value;
    // What the last of equal keys replaces is gone.
    if (stack_.size() == 1 && value == "model") result.vocabulary_of = nullptr;
    member_ = &(*stack_.back())[std::move(value)];
    return true;
  }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::detail::exception&) {
    if (at > bytes_)
      throw FileError("{}: is truncated: its JSON does not end with the file's {} bytes. Fix: {}.", file_,
                      bytes_, kNewCopy);
    throw FileError("{}: not valid JSON at byte {}. Fix: {}.", file_, at, kNewCopy);
  }

 private:
  Json* place(Json&& value) {
    if (stack_.empty()) {
      result.json = std::move(value);
      return &result.json;
    }
    if (stack_.back()->is_array()) {
      stack_.back()->push_back(std::move(value));
      return &stack_.back()->back();
    }
    *member_ = std::move(value);
    return member_;
  }
  bool put(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json&& value) {
    if (stack_.size() == kDeepest)
      throw FileError("{}: nests deeper than {} levels. Fix: {}.", file_, kDeepest, kNewCopy);
    stack_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  std::size_t bytes_;
  const std::string& file_;
  bool splits_;
  std::vector<Json*> stack_;
  std::string keys_[2];  // of the outer two objects
  Json* member_ = nullptr;
};

}  // namespace

Json parse_json(std::string_view text, const std::string& file) {
  return std::move(Builder(text, file, false).result.json);
}

JsonDocument parse_document(std::string_view text, const std::string& file) {
  return std::move(Builder(text, file, true).result);
}

void JsonView::fail(std::string_view message, std::string_view fix) const {
  throw FileError("{}: {}: {}. Fix: {}.", file_, path_, message, fix.empty() ? kNewCopy : fix);
}

void JsonView::expected(std::string_view what) const {
  std::string got = value_->dump(-1, ' ', true, Json::error_handler_t::replace);
  if (got.size() > 60) got = got.substr(0, 57) + "...";
  fail(fmt::format("expected {}, got {}", what, got));
}

JsonView JsonView::at(std::string_view key) const {
  if (!value_->is_object()) expected(fmt::format("an object with the key \"{}\"", key));
  const auto member = value_->find(key);
  if (member == value_->end()) fail(fmt::format("the key \"{}\" is missing", key));
  return inside(*member, fmt::format("{}.{}", path_, key));
}

JsonView JsonView::inside(const Json& value, std::string path) const {
  JsonView view(value, file_, std::move(path));
  view.document_ = document_;
  return view;
}

std::optional<JsonView> JsonView::find(std::string_view key) const {
  if (!value_->is_object()) expected("an object");
  const auto member = value_->find(key);
  if (member == value_->end() || member->is_null()) return std::nullopt;
  return inside(*member, fmt::format("{}.{}", path_, key));
}

std::size_t JsonView::member_count() const {
  return is_vocabulary() ? document_->vocabulary.size() : value_->size();
}

void JsonView::members(FunctionRef<void(const std::string&, const Json&)> each) const {
  if (!value_->is_object()) expected("an object");
  if (is_vocabulary()) {
    for (const auto& [key, value] : document_->vocabulary) each(key, value);
  } else {
    for (const auto& [key, value] : value_->get_ref<const Json::object_t&>()) each(key, value);
  }
}

std::vector<JsonView> JsonView::items() const {
  if (!value_->is_array()) expected("an array");
  std::vector<JsonView> views;
  for (std::size_t i = 0; i < value_->size(); ++i)
    views.push_back(inside((*value_)[i], fmt::format("{}[{}]", path_, i)));
  return views;
}

std::string JsonView::text() const {
  if (!value_->is_string()) expected("a string");
  return value_->get<std::string>();
}

bool JsonView::boolean() const {
  if (!value_->is_boolean()) expected("true or false");
  return value_->get<bool>();
}

std::int64_t JsonView::integer(std::int64_t limit) const {
  if (!value_->is_number_unsigned() || value_->get<std::uint64_t>() > static_cast<std::uint64_t>(limit))
    expected(fmt::format("an integer from 0 to {}", limit));
  return value_->get<std::int64_t>();
}

char32_t JsonView::character() const {
  const std::string content = text();
  std::size_t at = 0;
  if (content.empty() || utf8_length(content[0]) != content.size()) expected("a string of one character");
  return next_code_point(content, at);
}

bool JsonView::boolean_or(std::string_view key, bool otherwise) const {
  const std::optional<JsonView> member = find(key);
  return member ? member->boolean() : otherwise;
}

std::string JsonView::text_or(std::string_view key, std::string_view otherwise) const {
  const std::optional<JsonView> member = find(key);
  return member ? member->text() : std::string(otherwise);
}

}  // namespace mantissa::tokenizer
