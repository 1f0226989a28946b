// One reader per file format; sources.h says what each format is. All throw FileError naming the file and the
// place.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mantissa/text/tokenizer.h"

namespace mantissa::text {

/// Puts the ids of a plain-text file behind `ids`, after a separator where `ids` does not end with one
/// already. ConfigError where the tokenizer has more entries than `vocabulary`; so too for JSON lines.
void append_text_file(const std::string& path, const Tokenizer& tokenizer, std::int64_t vocabulary,
                      std::vector<std::int32_t>& ids);

/// Puts the documents of a file of JSON lines behind `ids`, each with its separator.
void append_jsonl_file(const std::string& path, const Tokenizer& tokenizer, std::int64_t vocabulary,
                       std::vector<std::int32_t>& ids);

/// Puts the raw ids of a token file behind `ids`.
void append_token_file(const std::string& path, std::int64_t vocabulary, std::vector<std::int32_t>& ids);

}  // namespace mantissa::text
