// Normalizers: what happens to a text before it is split.
#pragma once

#include <memory>

#include "mantissa/text/tokenizer/json.h"
#include "mantissa/text/tokenizer/patterns.h"
#include "mantissa/text/tokenizer/piece.h"

namespace mantissa::tokenizer {

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(OwnedPiece& piece, MatchMemory& memory) const = 0;
};

/// Reads a normalizer of a tokenizer.json. Throws FileError for an unknown type.
std::unique_ptr<Normalizer> read_normalizer(const JsonView& json);

/// Throws ConfigError if a text of `before` bytes has grown to `now` bytes, more than 64 MiB and 64 times as
/// many: a damaged file can replace every character by a long text.
void require_length(std::size_t before, std::size_t now);

/// Reads a "pattern" member: {"String": …} or {"Regex": …}.
Pattern read_pattern(const JsonView& json);

}  // namespace mantissa::tokenizer
