// Pre-tokenizers: how a normalized text is split into words for the model.
#pragma once

#include <memory>

#include "mantissa/text/tokenizer/json.h"
#include "mantissa/text/tokenizer/patterns.h"
#include "mantissa/text/tokenizer/piece.h"
#include "mantissa/text/tokenizer/split.h"

namespace mantissa::tokenizer {

class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  /// Passes the words of `piece`, which is not empty, to `sink`.
  virtual void split(const Piece& piece, MatchMemory& memory, PieceSink sink) const = 0;
  /// Makes the last step, if it writes bytes as characters (byte_level.h), leave them as bytes. Returns false
  /// if it does not.
  virtual bool leave_bytes() { return false; }
};

/// Reads a pre-tokenizer of a tokenizer.json. Throws FileError for an unknown type.
std::unique_ptr<PreTokenizer> read_pre_tokenizer(const JsonView& json);

/// Reads the replacement of a Metaspace, and whether it prepends one.
struct MetaspaceOptions {
  char32_t replacement;
  enum class Prepend { kAlways, kNever, kFirst } prepend;
  bool split;
};
MetaspaceOptions read_metaspace(const JsonView& json);

}  // namespace mantissa::tokenizer
