// The filters of templates: Jinja's, with `tojson` as transformers defines it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "mantissa/text/chat/arguments.h"
#include "mantissa/text/chat/value.h"

namespace mantissa::chat {

using Filter = Value (*)(Interpreter&, const Value& input, Arguments&);

/// Returns the filter, or null.
Filter find_filter(std::string_view name);
/// Returns the message for a name that find_filter does not know.
std::string unknown_filter(std::string_view name);

/// A name with its filter.
struct FilterRow {
  std::string_view name;
  Filter filter;
};
std::span<const FilterRow> text_filters();      // filters_text.cpp
std::span<const FilterRow> number_filters();    // filters_number.cpp
std::span<const FilterRow> sequence_filters();  // filters_sequence.cpp
std::span<const FilterRow> select_filters();    // filters_select.cpp

/// Looks up a path such as "a.b.0" in an element, as `map(attribute=…)` does.
class AttributePath {
 public:
  /// The path is a string, an integer, or None for the element itself.
  AttributePath(const Value& path, Meter& meter);
  Value operator()(Interpreter& in, Value element) const;
  /// Likewise, with `preset` for what is undefined.
  Value operator()(Interpreter& in, Value element, const Value& preset) const;

 private:
  std::vector<Value> parts_;
};

/// Returns the value in lower case if it is a string, else the value.
Value fold_case(Interpreter& in, const Value& v);

}  // namespace mantissa::chat
