// The end of a generated text at given strings, which may span several tokens.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mantissa::tokenizer {

/// Passes a growing text on up to the first occurrence of a stop string, which is left out. Text that may be
/// the beginning of a stop string is held back.
class StopText {
 public:
  /// Throws ConfigError for an empty string.
  explicit StopText(std::vector<std::string> stops);

  /// Appends `part` and returns the text that is certain. After a stop string, returns nothing more.
  std::string push(std::string_view part);
  /// Returns the text that is held back. No part may follow.
  std::string finish();
  /// True after a stop string.
  bool stopped() const { return !found_.empty(); }
  /// Returns the stop string, or "" before one.
  const std::string& found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string held_, found_;
};

}  // namespace mantissa::tokenizer
