#include "mantissa/text/rows/pieces.h"

#include <algorithm>
#include <vector>

namespace mantissa::text {
namespace {

/// Bytes on each side of a place that are encoded to judge it.
constexpr std::size_t kContext = 512;

bool is_space(char c) {
  return static_cast<unsigned char>(c) <= ' ';
}

/// Returns true for the end of a line that has text, before a line that begins with text.
bool is_line_end(std::string_view text, std::size_t at) {
  return at >= 2 && at < text.size() && text[at - 1] == '\n' && !is_space(text[at - 2]) &&
         !is_space(text[at]);
}

bool continues_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

}  // namespace

bool divides(const tokenizer::Tokenizer& tokenizer, std::string_view text, std::size_t at) {
  std::size_t begin = at - std::min(at, kContext), end = std::min(text.size(), at + kContext);
  while (begin > 0 && continues_character(text[begin])) --begin;
  while (end < text.size() && continues_character(text[end])) ++end;
  std::vector<std::int32_t> apart = tokenizer.encode(text.substr(begin, at - begin));
  const std::vector<std::int32_t> after = tokenizer.encode(text.substr(at, end - at));
  apart.insert(apart.end(), after.begin(), after.end());
  return apart == tokenizer.encode(text.substr(begin, end - begin));
}

std::size_t TextPieces::find_end() const {
  constexpr int kTries = 8;
  int tries = 0;
  // A larger buffer follows a smaller one without such a place.
  for (std::size_t at = std::max(piece_bytes_, buffer_.size() / 2 - 1); at < buffer_.size() && tries < kTries;
       ++at) {
    at = buffer_.find('\n', at);
    if (at == std::string::npos) break;
    if (!is_line_end(buffer_, at + 1)) continue;
    if (divides(tokenizer_, buffer_, at + 1)) return at + 1;
    ++tries;
  }
  return std::string::npos;
}

void TextPieces::fill(std::size_t bytes) {
  if (at_end_ || buffer_.size() >= bytes) return;
  const std::size_t before = buffer_.size();
  buffer_.resize(bytes);
  buffer_.resize(before + input_.read(buffer_.data() + before, bytes - before));
  at_end_ = buffer_.size() < bytes;
}

bool TextPieces::next(std::string& piece) {
  std::size_t end = std::string::npos;
  for (std::size_t bytes = 2 * piece_bytes_;; bytes *= 2) {
    fill(bytes);
    end = find_end();
    if (end != std::string::npos || at_end_) break;
  }
  end = std::min(end, buffer_.size());
  piece.assign(buffer_, 0, end);
  buffer_.erase(0, end);
  return !piece.empty();
}

}  // namespace mantissa::text
