// Unicode normal forms.
#pragma once

#include <string>
#include <string_view>

namespace mantissa::tokenizer {

/// Returns NFC, NFD, NFKC or NFKD of `text` (UTF-8), with the Unicode version of `tokenizers`: later code
/// points stay.
std::string normal_form(std::string_view text, bool compose, bool compatibility);

}  // namespace mantissa::tokenizer
