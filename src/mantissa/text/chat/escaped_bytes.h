// Bytes that are not UTF-8 inside the text of a conversation: templates work on characters.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace mantissa::chat {

/// Writes each byte that is not part of a UTF-8 character as one character of a private-use plane, and reads
/// it back, as Python's `surrogateescape` does.
class EscapedBytes {
 public:
  /// Chooses characters that none of `texts` contains.
  explicit EscapedBytes(std::span<const std::string_view> texts);

  /// Returns valid UTF-8; text that is UTF-8 stays as it is.
  std::string escape(std::string_view bytes) const;
  /// Returns the bytes that escape() read.
  std::string restore(std::string_view text) const;

 private:
  char32_t first_;  // of 256 characters, one for each byte
};

}  // namespace mantissa::chat
