// Normalizers: what happens to a text before it is split.
#pragma once

#include <memory>

#include "mantissa/tokenizer/json.h"
#include "mantissa/tokenizer/patterns.h"
#include "mantissa/tokenizer/piece.h"

namespace mantissa::tokenizer {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(OwnedPiece& piece, MatchMemory& memory) const = 0;
};

/// Reads a normalizer of a tokenizer.json. Throws FileError for an unknown type.
std::unique_ptr<Normalizer> read_normalizer(const JsonView& json);

/// Reads a "pattern" member: {"String": …} or {"Regex": …}.
Pattern read_pattern(const JsonView& json);

}  // namespace mantissa::tokenizer
