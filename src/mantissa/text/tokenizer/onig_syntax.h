// Regular expressions as Oniguruma reads them, rewritten for PCRE2.
#pragma once

#include <string>
#include <string_view>

namespace mantissa::tokenizer {

/// Rewrites `pattern` (Oniguruma's Ruby syntax, which `tokenizers` uses) so that PCRE2 with UTF and MULTILINE
/// matches the same text. Differences that are rewritten: `{n,m}+` repeats instead of being possessive,
/// `(?m)` lets a dot match a newline, `(?i)` applies to the whole rest of its group, \h is a hexadecimal
/// digit, classes may be nested and intersected, and \s, \w, \d, \p{…} and [[:…:]] mean the classes of
/// Unicode 16.0. Throws std::invalid_argument with what is unsupported and its position.
std::string pcre2_from_onig(std::string_view pattern);

/// Returns a class with the characters that \w matches: as in Oniguruma, or as in Rust's regex crate.
std::string word_class(bool rust);

}  // namespace mantissa::tokenizer
