#include "mantissa/text/chat/filters.h"

#include <fmt/format.h>

#include "mantissa/core/base/suggest.h"
#include "mantissa/text/chat/access.h"
#include "mantissa/text/chat/error.h"
#include "mantissa/text/chat/interpreter.h"
#include "mantissa/text/chat/unicode.h"

namespace mantissa::chat {

namespace {

std::array<std::span<const FilterRow>, 4> all_filters() {
  return {text_filters(), number_filters(), sequence_filters(), select_filters()};
}

}  // namespace

Filter find_filter(std::string_view name) {
  for (const auto rows : all_filters()) {
    for (const FilterRow& row : rows) {
      if (row.name == name) return row.filter;
    }
  }
  return nullptr;
}

std::string unknown_filter(std::string_view name) {
  std::vector<std::string> names;
  for (const auto rows : all_filters()) {
    for (const FilterRow& row : rows) names.emplace_back(row.name);
  }
  const auto near = nearest(name, names);
  return fmt::format(
      "unknown filter '{}'. Fix: {}", name,
      near ? fmt::format("did you mean '{}'?", *near)
           : "use a filter of docs/chat.md, or choose another template by data.template or --template");
}

AttributePath::AttributePath(const Value& path, Meter& meter) {
  if (path.is_none()) return;
  if (!path.text()) {
    parts_.push_back(path);
    return;
  }
  const std::string& text = path.text()->bytes;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t dot = std::min(text.find('.', at), text.size());
    const std::string part = text.substr(at, dot - at);
    const bool number =
        !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == std::string::npos;
    parts_.push_back(number ? Value(static_cast<std::int64_t>(std::stoll(part))) : make_text(meter, part));
    at = dot + 1;
  }
}

Value AttributePath::operator()(Interpreter& in, Value element) const {
  for (const Value& part : parts_) element = get_item(in, element, part);
  return element;
}

Value AttributePath::operator()(Interpreter& in, Value element, const Value& preset) const {
  for (const Value& part : parts_) {
    element = get_item(in, element, part);
    if (element.is_undefined() && !preset.is_none()) element = preset;
  }
  return element;
}

Value fold_case(Interpreter& in, const Value& v) {
  return v.text() ? make_text(in.meter(), unicode::lower(v.text()->bytes)) : v;
}

}  // namespace mantissa::chat
