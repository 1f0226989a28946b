// The precompiled normalization tables of SentencePiece, as stored in its models and in tokenizer.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "mantissa/text/tokenizer/json.h"

namespace mantissa::tokenizer {

/// Returns true if no look-up in a character map reads beyond its end. A map is the size of its trie in
/// bytes, the trie, and the replacements, each of which ends with NUL. Units of the trie that no key reaches
/// are checked, too.
bool is_whole_charsmap(std::string_view bytes);

/// A trie (a double array in the format of darts-clone) from character sequences to their replacements.
class PrecompiledCharsmap {
 public:
  /// Reads the base64 text of a file.
  static PrecompiledCharsmap read(const JsonView& json);

  /// Replaces each grapheme of less than 6 bytes, else each of its code points, by its entry, if there is
  /// one.
  std::string apply(std::string_view text) const;

 private:
  /// Returns true and the replacement of the shortest prefix of `key` in the trie.
  bool find(std::string_view key, std::string_view& replacement) const;

  std::vector<std::uint32_t> trie_;
  std::string replacements_;
};

}  // namespace mantissa::tokenizer
