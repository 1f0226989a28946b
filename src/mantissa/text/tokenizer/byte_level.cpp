#include "mantissa/text/tokenizer/byte_level.h"

#include <nlohmann/json.hpp>

#include "mantissa/text/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

constexpr bool is_printable(unsigned byte) {
  return (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
}

constexpr std::array<char32_t, 256> make_characters() {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) characters[byte] = is_printable(byte) ? byte : next++;
  return characters;
}

constexpr std::array<char32_t, 256> kCharacters = make_characters();
constexpr char32_t kEnd = 0x144;  // past the last character

constexpr std::array<int, kEnd> make_bytes() {
  std::array<int, kEnd> bytes{};
  for (int& byte : bytes) byte = -1;
  for (int byte = 0; byte < 256; ++byte) bytes[kCharacters[static_cast<std::size_t>(byte)]] = byte;
  return bytes;
}

constexpr std::array<int, kEnd> kBytes = make_bytes();

}  // namespace

const std::array<char32_t, 256>& byte_characters() {
  return kCharacters;
}

std::string to_byte_characters(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() * 2);
  for (const char byte : bytes) append_utf8(kCharacters[static_cast<unsigned char>(byte)], text);
  return text;
}

std::optional<std::string> from_byte_characters(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const char32_t point = next_code_point(text, at);
    if (point >= kEnd || kBytes[point] < 0) return std::nullopt;
    bytes += static_cast<char>(kBytes[point]);
  }
  return bytes;
}

nlohmann::ordered_json byte_level_file(const nlohmann::ordered_json& added_tokens, bool use_regex,
                                       const nlohmann::ordered_json& vocab,
                                       const nlohmann::ordered_json& merges) {
  const nlohmann::ordered_json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added_tokens},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model",
           {{"type", "BPE"},
            {"dropout", nullptr},
            {"unk_token", nullptr},
            {"continuing_subword_prefix", nullptr},
            {"end_of_word_suffix", nullptr},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"ignore_merges", false},
            {"vocab", vocab},
            {"merges", merges}}}};
}

}  // namespace mantissa::tokenizer
