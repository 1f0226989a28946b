// A long text in pieces whose ids, joined, are those of the whole text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "mantissa/text/rows/byte_reader.h"
#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::text {

/// Returns true if the ids of text[0, at) and text[at, end) are those of the text, judged by the lines around
/// `at`: their ids must be those of the two sides.
bool divides(const tokenizer::Tokenizer& tokenizer, std::string_view text, std::size_t at);

/// Reads a text file in pieces of about `piece_bytes`, which end at the end of a line that divides() the
/// text. With a tokenizer whose ids depend on where a text begins, such as SentencePiece's, no line end
/// divides, and the whole text is one piece.
class TextPieces {
 public:
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 18;

  TextPieces(const std::string& path, const tokenizer::Tokenizer& tokenizer,
             std::size_t piece_bytes = kPieceBytes)
      : input_(path), tokenizer_(tokenizer), piece_bytes_(piece_bytes) {}

  /// Returns false at the end of the file. Throws FileError as ByteReader does.
  bool next(std::string& piece);
  const ByteReader& input() const { return input_; }

 private:
  /// Returns where the next piece ends, or npos if there is no such place.
  std::size_t find_end() const;
  void fill(std::size_t bytes);

  ByteReader input_;
  const tokenizer::Tokenizer& tokenizer_;
  std::size_t piece_bytes_;
  std::string buffer_;  // read, and not yet returned
  bool at_end_ = false;
};

}  // namespace mantissa::text
