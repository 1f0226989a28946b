// Errors of chat templates: what is wrong, at which line and column of the template, and what to do.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "mantissa/core/base/error.h"

namespace mantissa::chat {

/// A position in a template's source, both from 1. Columns count code points.
struct Place {
  std::uint32_t line = 1;
  std::uint32_t column = 1;
};

/// A template is not valid, uses something unsupported, or fails on a conversation.
/// what() is "NAME:LINE:COLUMN: message".
class TemplateError : public Error {
 public:
  TemplateError(const std::string& name, Place place, const std::string& message);
  Place place() const { return place_; }

 private:
  Place place_;
};

/// The template itself rejects the conversation, by `raise_exception(message)`.
class RaisedByTemplate : public TemplateError {
 public:
  RaisedByTemplate(const std::string& name, Place place, const std::string& raised);
  /// Returns the message as the template wrote it.
  const std::string& raised() const { return raised_; }

 private:
  std::string raised_;
};

/// A failure inside an operation that does not know its place. The interpreter turns it into a TemplateError.
class Fault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
  /// The message is fmt::format(text, first, rest…).
  template <class First, class... Rest>
  explicit Fault(fmt::format_string<First, Rest...> text, First&& first, Rest&&... rest)
      : runtime_error(fmt::format(text, std::forward<First>(first), std::forward<Rest>(rest)...)) {}
};

/// A call of `raise_exception`, before its place is known.
class RaiseCalled : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace mantissa::chat
