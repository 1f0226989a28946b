// Decoders: from tokens back to text, also while the tokens arrive.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "mantissa/text/tokenizer/json.h"
#include "mantissa/text/tokenizer/piece.h"

namespace mantissa::tokenizer {

/// A part of the tokens' text: whole characters. A step may join tokens and pass them on before the last one
/// has arrived, so a token has one part or several.
struct TokenPart {
  std::string_view text;
  bool begins = true, ends = true;  // a token
};

/// Receives parts in order.
using PartSink = FunctionRef<void(const TokenPart&)>;

/// One decoding. Joined, the parts that it passes on are the text of all tokens.
class Decoding {
 public:
  virtual ~Decoding() = default;
  /// Takes the next part. Passes on what no later part changes.
  virtual void push(const TokenPart& part, PartSink sink) = 0;
  /// Passes on the rest. The last token has ended.
  virtual void finish(PartSink) {}
};

/// The form of bytes that are not part of a whole character: U+FFFD as in `tokenizers`, or one byte each, so
/// that the text has the length of its bytes and remains UTF-8.
enum class StrayBytes : std::uint8_t { replaced, counted };

/// An immutable decoder. It outlives its decodings.
class Decoder {
 public:
  virtual ~Decoder() = default;
  virtual std::unique_ptr<Decoding> begin(StrayBytes stray) const = 0;
};

/// Reads a decoder of a tokenizer.json. Throws FileError for an unknown type.
std::unique_ptr<Decoder> read_decoder(const JsonView& json);

}  // namespace mantissa::tokenizer
