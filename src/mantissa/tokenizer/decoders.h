// Decoders: from tokens back to text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/tokenizer/json.h"
#include "mantissa/tokenizer/patterns.h"

namespace mantissa::tokenizer {

/// The form of bytes that are not part of a whole character: U+FFFD as in `tokenizers`, or one byte each, so
/// that the text has the length of its bytes and remains UTF-8.
enum class StrayBytes : std::uint8_t { replaced, counted };

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Rewrites the tokens; joined, the last ones are the text.
  virtual void apply(std::vector<std::string>& tokens, MatchMemory& memory, StrayBytes stray) const = 0;
};

/// Reads a decoder of a tokenizer.json. Throws FileError for an unknown type.
std::unique_ptr<Decoder> read_decoder(const JsonView& json);

}  // namespace mantissa::tokenizer
