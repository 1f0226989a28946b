// The arguments of calls, filters and tests, bound to parameters by position or name as in Python.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/text/chat/value.h"

namespace mantissa::chat {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  /// Removes and returns the named argument, or null.
  std::optional<Value> take(std::string_view name);
};

/// The parameters of a function, of which the first `required` must be given.
class Parameters {
 public:
  Parameters(std::string_view function, Arguments& arguments, std::initializer_list<std::string_view> names,
             std::size_t required = 0);

  /// Returns the argument, or null if it is not given.
  const Value* operator[](std::size_t i) const { return values_[i] ? &*values_[i] : nullptr; }
  bool given(std::size_t i) const { return values_[i].has_value(); }
  /// Returns true if the argument is given and not None.
  bool some(std::size_t i) const { return values_[i] && !values_[i]->is_none(); }
  const Value& at(std::size_t i) const { return *values_[i]; }
  bool flag(std::size_t i, bool preset) const;
  // Each throws a Fault if the argument has another type.
  std::int64_t integer(std::size_t i, std::int64_t preset) const;
  std::int64_t integer(std::size_t i) const;
  const std::string& text(std::size_t i) const;

 private:
  [[noreturn]] void wrong(std::size_t i, std::string_view expected) const;

  std::string_view function_;
  std::vector<std::string_view> names_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace mantissa::chat
