#include "mantissa/text/tokenizer/charsmap.h"

#include <utf8proc.h>

#include <algorithm>
#include <optional>

#include "mantissa/text/tokenizer/normalizers.h"
#include "mantissa/text/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

// Fields of a unit of darts-clone.
std::uint32_t offset_of(std::uint32_t unit) {
  return (unit >> 10) << ((unit & (1U << 9)) >> 6);
}
std::uint32_t label_of(std::uint32_t unit) {
  return unit & ((1U << 31) | 0xFF);
}
bool has_leaf(std::uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}
std::uint32_t value_of(std::uint32_t unit) {
  return unit & ((1U << 31) - 1);
}

constexpr std::size_t kWord = sizeof(std::uint32_t);

/// The little-endian word at a byte.
std::uint32_t word(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = kWord; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

/// The bytes of the trie, or null if a map is shorter than its header says.
std::optional<std::size_t> trie_bytes(std::string_view map) {
  if (map.size() < kWord) return std::nullopt;
  const std::size_t size = word(map, 0);
  if (size % kWord != 0 || size == 0 || size > map.size() - kWord) return std::nullopt;
  return size;
}

std::optional<std::string> decode_base64(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  while (!text.empty() && text.back() == '=') text.remove_suffix(1);
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    if (digit == kDigits.npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      bytes += static_cast<char>(bits >> count & 0xFF);
    }
  }
  return bytes;
}

}  // namespace

bool is_whole_charsmap(std::string_view bytes) {
  const std::optional<std::size_t> size = trie_bytes(bytes);
  if (!size) return false;
  const std::string_view replacements = bytes.substr(kWord + *size);
  if (replacements.empty() || replacements.back() != '\0') return false;
  const std::size_t units = *size / kWord;
  for (std::size_t i = 0; i < units; ++i) {
    const std::uint32_t unit = word(bytes, kWord + i * kWord);
    if (i > 0 && label_of(unit) > 0xFF) continue;  // a value, which the byte of no key selects
    const std::size_t children = i ^ offset_of(unit);
    if ((children | 0xFF) >= units) return false;
    if (has_leaf(unit) && value_of(word(bytes, kWord + children * kWord)) >= replacements.size())
      return false;
  }
  return true;
}

PrecompiledCharsmap PrecompiledCharsmap::read(const JsonView& json) {
  const std::optional<std::string> bytes = decode_base64(json.text());
  if (!bytes || bytes->size() < kWord) json.fail("expected base64 of a character map");
  const std::optional<std::size_t> size = trie_bytes(*bytes);
  if (!size) json.fail("the character map is shorter than its header says");
  PrecompiledCharsmap map;
  for (std::size_t at = kWord; at < kWord + *size; at += kWord) map.trie_.push_back(word(*bytes, at));
  map.replacements_ = bytes->substr(kWord + *size);
  std::string repaired;
  if (repair_utf8(map.replacements_, repaired) != map.replacements_)
    json.fail("the replacements of the character map are not UTF-8");
  return map;
}

bool PrecompiledCharsmap::find(std::string_view key, std::string_view& replacement) const {
  std::size_t node = offset_of(trie_[0]);
  for (const char c : key) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte == 0) break;
    node ^= byte;
    if (node >= trie_.size() || label_of(trie_[node]) != byte) return false;
    const std::uint32_t unit = trie_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (node >= trie_.size()) return false;
    const std::size_t start = value_of(trie_[node]);
    if (start >= replacements_.size() || (static_cast<unsigned char>(replacements_[start]) & 0xC0) == 0x80)
      return false;
    const std::size_t end = std::min(replacements_.find('\0', start), replacements_.size());
    replacement = std::string_view(replacements_).substr(start, end - start);
    return true;
  }
  return false;
}

std::string PrecompiledCharsmap::apply(std::string_view text) const {
  constexpr std::size_t kShort = 6;
  std::string result;
  result.reserve(text.size());
  std::string_view replacement;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    utf8proc_int32_t state = 0;
    auto previous = static_cast<utf8proc_int32_t>(next_code_point(text, end));
    while (end < text.size()) {
      std::size_t next = end;
      const auto point = static_cast<utf8proc_int32_t>(next_code_point(text, next));
      if (utf8proc_grapheme_break_stateful(previous, point, &state)) break;
      previous = point;
      end = next;
    }
    const std::string_view grapheme = text.substr(at, end - at);
    at = end;
    require_length(text.size(), result.size());
    if (grapheme.size() < kShort && find(grapheme, replacement)) {
      result += replacement;
      continue;
    }
    for (std::size_t i = 0; i < grapheme.size();) {
      const std::string_view part = grapheme.substr(i, utf8_length(grapheme[i]));
      i += part.size();
      result += find(part, replacement) ? replacement : part;
    }
  }
  return result;
}

}  // namespace mantissa::tokenizer
