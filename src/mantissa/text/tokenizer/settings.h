// The settings with which other programs load a tokenizer file: tokenizer_config.json.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "mantissa/text/tokenizer/tokenizer.h"

namespace mantissa::tokenizer {

/// Returns "bos_token", "eos_token" and "pad_token" with the spellings of the tokens, for a tokenizer whose
/// files do not name them. The separator ends a text. It also begins one, since every document follows a
/// separator, unless the tokenizer has a token that begins a text. The separator is also the padding, as no
/// other token is free. Empty if the tokenizer has no separator.
nlohmann::ordered_json special_tokens(const Tokenizer& tokenizer);

/// The forms of tokenizer files that transformers reads.
enum class FileForm { tokenizer_json, sentencepiece };

/// Returns a tokenizer_config.json with these tokens, with which transformers' AutoTokenizer gives the ids of
/// Tokenizer::encode_with_template().
std::string settings_json(const Tokenizer& tokenizer, FileForm form);

}  // namespace mantissa::tokenizer
