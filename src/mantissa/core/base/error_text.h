// Errors with formatted messages: throw ConfigError("{}: expected {}", where, what).
#pragma once

#include <fmt/format.h>

#include <utility>

#include "mantissa/core/base/error.h"

namespace mantissa {

/// A format string that is checked against the types of its arguments when it is compiled.
template <class... Arguments>
class CheckedText {
 public:
  template <class Text>
  consteval CheckedText(const Text& text) : text_(text) {}  // NOLINT(google-explicit-constructor)
  fmt::format_string<Arguments...> get() const { return text_; }

 private:
  fmt::format_string<Arguments...> text_;
};

template <class First, class... Rest>
InternalError::InternalError(ErrorText<First, Rest...> text, First&& first, Rest&&... rest)
    : logic_error(fmt::format(text.get(), std::forward<First>(first), std::forward<Rest>(rest)...)) {}

template <class First, class... Rest>
Error::Error(ErrorText<First, Rest...> text, First&& first, Rest&&... rest)
    : Error(fmt::format(text.get(), std::forward<First>(first), std::forward<Rest>(rest)...)) {}

}  // namespace mantissa
