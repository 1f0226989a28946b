// Decoders: from tokens back to text.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "mantissa/tokenizer/json.h"
#include "mantissa/tokenizer/patterns.h"

namespace mantissa::tokenizer {

class Decoder {
 public:
  virtual ~Decoder() = default;
  /// Rewrites the tokens; joined, the last ones are the text.
  virtual void apply(std::vector<std::string>& tokens, MatchMemory& memory) const = 0;
};

/// Reads a decoder of a tokenizer.json. Throws FileError for an unknown type.
std::unique_ptr<Decoder> read_decoder(const JsonView& json);

}  // namespace mantissa::tokenizer
