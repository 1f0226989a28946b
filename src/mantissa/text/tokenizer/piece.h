// Parts of a text on their way to the model.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace mantissa::tokenizer {

/// A part of the normalized text.
struct Piece {
  std::string_view text;
  /// The leading bytes that come from the first code point of the input: 0 for a part that does not begin the
  /// input. Metaspace's scheme "first" depends on it.
  std::size_t origin = 0;

  /// Returns bytes [from, to).
  Piece part(std::size_t from, std::size_t to) const {
    const std::size_t rest = origin > from ? origin - from : 0;
    return {text.substr(from, to - from), std::min(rest, to - from)};
  }
};

/// A part that owns its text.
struct OwnedPiece {
  std::string text;
  std::size_t origin = 0;
  Piece view() const { return {text, origin}; }
};

/// A reference to a callable.
template <class Signature>
class FunctionRef;

template <class Result, class... Arguments>
class FunctionRef<Result(Arguments...)> {
 public:
  template <class Callable>
  FunctionRef(const Callable& callable)  // NOLINT: implicit, as a reference is
      : target_(&callable), call_([](const void* target, Arguments... arguments) -> Result {
          return (*static_cast<const Callable*>(target))(arguments...);
        }) {}
  Result operator()(Arguments... arguments) const { return call_(target_, arguments...); }

 private:
  const void* target_;
  Result (*call_)(const void*, Arguments...);
};

}  // namespace mantissa::tokenizer
