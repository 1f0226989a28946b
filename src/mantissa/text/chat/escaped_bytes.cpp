#include "mantissa/text/chat/escaped_bytes.h"

#include <algorithm>
#include <bitset>

#include "mantissa/text/chat/unicode.h"

namespace mantissa::chat {
namespace {

constexpr char32_t kPlane = 0x100000;  // the second private-use plane
constexpr char32_t kBlock = 256;

/// Returns the number of bytes of the character at byte `at`, or 0 if none begins there.
std::size_t character_at(std::string_view bytes, std::size_t at) {
  for (std::size_t n = 1; n <= std::min<std::size_t>(4, bytes.size() - at); ++n) {
    if (unicode::valid(bytes.substr(at, n))) return n;
  }
  return 0;
}

}  // namespace

EscapedBytes::EscapedBytes(std::span<const std::string_view> texts) : first_(kPlane) {
  std::bitset<256> used;  // blocks of the plane
  for (const std::string_view text : texts) {
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = character_at(text, at);
      if (n == 4) {
        const char32_t c = unicode::code_point_at(text, at);
        if (c >= kPlane) used.set((c - kPlane) / kBlock);
      }
      at += std::max<std::size_t>(n, 1);
    }
  }
  // A text that uses all of the blocks has 256 of these characters; the last block then serves.
  while (used[(first_ - kPlane) / kBlock] && first_ < kPlane + 255 * kBlock) first_ += kBlock;
}

std::string EscapedBytes::escape(std::string_view bytes) const {
  if (unicode::valid(bytes)) return std::string(bytes);
  std::string text;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t n = character_at(bytes, at);
    if (n == 0) {
      unicode::append(text, first_ + static_cast<unsigned char>(bytes[at++]));
    } else {
      text += bytes.substr(at, n);
      at += n;
    }
  }
  return text;
}

std::string EscapedBytes::restore(std::string_view text) const {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t n = unicode::size_at(text, at);
    const char32_t c = unicode::code_point_at(text, at);
    if (c >= first_ && c < first_ + kBlock) {
      bytes.push_back(static_cast<char>(c - first_));
    } else {
      bytes += text.substr(at, n);
    }
    at += n;
  }
  return bytes;
}

}  // namespace mantissa::chat
