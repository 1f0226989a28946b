// The alphabet of byte-level tokenizers: each byte is written as one printable character.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace mantissa::tokenizer {

/// Returns the code point of each byte: itself if it is printable in Latin-1, else from U+0100 upwards.
const std::array<char32_t, 256>& byte_characters();

/// Returns `bytes` in this alphabet.
std::string to_byte_characters(std::string_view bytes);

/// Returns the bytes that `text` stands for, or null if it has a character outside the alphabet.
std::optional<std::string> from_byte_characters(std::string_view text);

/// Returns the tokenizer.json of a byte-level BPE. `use_regex`: texts are split into words first, as GPT-2
/// does.
nlohmann::ordered_json byte_level_file(const nlohmann::ordered_json& added_tokens, bool use_regex,
                                       const nlohmann::ordered_json& vocab,
                                       const nlohmann::ordered_json& merges);

}  // namespace mantissa::tokenizer
